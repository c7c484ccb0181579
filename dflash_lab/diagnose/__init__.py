"""From "acceptance is 1%" to the guilty field and the repaired config, measured.

| module | its one job |
| --- | --- |
| `players` | which fields change together, and putting one config's values into another |
| `blame` | what each differing field costs, given a good config |
| `evidence` | recorded conversations, short and long contexts |
| `score` | how well a config predicts recorded text, anchor by anchor |
| `proposals` | values worth trying for a field, from general rules |
| `search` | the repaired config, with no good one given |
| `signature` | suspects from the shape of the acceptance curve |
| `probes` | everything that is not the config |
| `steps`, `task` | all of that in order, and as a job for the worker |
| `verdict`, `report`, `card` | the answer in words, and what two people need to compare acceptance |
"""
