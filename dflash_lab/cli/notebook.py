"""``notebook``: list, show, compare, export, import and delete kept experiments."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dflash_lab.cli.options import note
from dflash_lab.errors import LabError
from dflash_lab.paths import write_whole
from dflash_lab.store import Experiment, Store
from dflash_lab.store.experiment import KINDS

FORMATS = ("dflash", "html", "ipynb", "csv", "json", "md")


def register(commands: Any) -> None:
    """Add ``notebook`` and what can be done with it."""
    group = commands.add_parser("notebook", help="kept experiments: list, show, compare, export, import, delete")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--store", type=Path, metavar="FILE", help="the notebook's file (default: in the data folder)")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, handler: Any, text: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text, parents=[shared])
        made.set_defaults(handler=handler)
        return made

    made = action("list", handle_list, "newest first, kept ones and recent ones")
    made.add_argument("words", nargs="*", metavar="WORD", help="only experiments that hold every word")
    made.add_argument("--kind", choices=KINDS)
    made.add_argument("--kept", action="store_true", help="leave the recent ones out")
    made.add_argument("--json", action="store_true")
    made = action("show", handle_show, "words, figures and provenance of one")
    made.add_argument("id", metavar="ID")
    made.add_argument("--json", action="store_true", help="everything, rounds included")
    made = action("compare", handle_compare, "two experiments on the prompts they share, B minus A")
    made.add_argument("ids", nargs=2, metavar=("A", "B"), help="ID or ID:SERIES, for instance ID:'K = 5'")
    made.add_argument("--out", type=Path, metavar="FILE", help="write a report: .html or .md")
    made.add_argument("--json", action="store_true")
    made = action("export", handle_export, "one experiment as a file; its ending says as what")
    made.add_argument("id", metavar="ID")
    made.add_argument("out", type=Path, metavar="FILE", help=f"ends in {', '.join('.' + f for f in FORMATS)}")
    made = action("import", handle_import, "take a .dflash file into the notebook")
    made.add_argument("file", type=Path, metavar="FILE")
    made = action("delete", handle_delete, "drop experiments for good")
    made.add_argument("ids", nargs="+", metavar="ID")


def handle_list(args: argparse.Namespace) -> int:
    """A line an experiment."""
    from dataclasses import asdict

    found = Store(args.store).entries(" ".join(args.words), args.kind, True if args.kept else None)
    if args.json:
        print(json.dumps([asdict(e) for e in found]))
        return 0
    for e in found:
        length = "   - " if e.acceptance_length is None else f"{e.acceptance_length:5.2f}"
        print(f"{e.id}  {'kept  ' if e.kept else 'recent'}  {e.kind:9}  AL {length}  {e.title}")
    if not found:
        note("Nothing there. Finished runs, sweeps, what-ifs and diagnoses of the app are kept by themselves.")
    return 0


def handle_show(args: argparse.Namespace) -> int:
    """One experiment as Markdown, or as JSON."""
    from dflash_lab.store.tables import as_json, markdown

    found = Store(args.store).get(args.id)
    if args.json:
        print(as_json(found))
        return 0
    print(markdown([found]))
    print("\n".join(f"{name:13} {value}" for name, value in found.provenance.items()))
    return 0


def handle_compare(args: argparse.Namespace) -> int:
    """The comparison as Markdown or JSON, and as a report."""
    from dflash_lab.store.compare import Side, compare
    from dflash_lab.store.report import html
    from dflash_lab.store.tables import markdown

    store = Store(args.store)
    here, there = (Side.of(store.get(name), series) for name, _, series in (i.partition(":") for i in args.ids))
    found = compare(here, there)
    both = [here.experiment, there.experiment]
    if args.out:
        makers = {".html": html, ".md": markdown}
        if args.out.suffix not in makers:
            raise LabError(f"A comparison cannot be written as {args.out.suffix or 'that'}", "Use .html or .md")
        note(f"wrote {_write(args.out, makers[args.out.suffix](both, found))}")
    p = found.paired
    if args.json:
        print(
            json.dumps(
                {
                    "difference": p.difference if p else None,
                    "difference_interval": [p.low, p.high] if p else None,
                    "clear": p.clear if p else None,
                    "common_prompts": len(found.common),
                    "config": {d.field: [d.here, d.there] for d in found.config},
                    "texts": found.texts_sentence(),
                }
            )
        )
    else:
        print(markdown(both, found))
    return 0


def handle_export(args: argparse.Namespace) -> int:
    """Write one experiment in the form that the file's name asks for."""
    note(f"wrote {export(Store(args.store).get(args.id), args.out)}")
    return 0


def export(experiment: Experiment, out: Path) -> Path:
    """Write the experiment as what ``out`` ends in. Raises LabError for an ending that is none of FORMATS."""
    from dflash_lab.store import files, jupyter, report, tables

    if out.suffix == files.SUFFIX:
        return files.write_file(experiment, out)
    makers = {
        ".html": lambda: report.html([experiment]),
        ".ipynb": lambda: jupyter.notebook(experiment),
        ".csv": lambda: tables.as_csv(experiment),
        ".json": lambda: tables.as_json(experiment),
        ".md": lambda: tables.markdown([experiment]),
    }
    if out.suffix not in makers:
        raise LabError(f"An experiment cannot be written as {out.suffix or 'that'}", f"Use .{', .'.join(FORMATS)}")
    return _write(out, makers[out.suffix]())


def _write(out: Path, text: str) -> Path:
    try:
        return write_whole(out, text)
    except OSError as error:
        raise LabError(f"{out} cannot be written: {error.strerror}", "Give another file") from error


def handle_import(args: argparse.Namespace) -> int:
    """Take a file in and print the id it has here."""
    from dflash_lab.store.files import read_file, take_in

    taken = take_in(Store(args.store), read_file(args.file))
    print(taken.id)
    return 0


def handle_delete(args: argparse.Namespace) -> int:
    """Delete what was named, or nothing when one of them is not there."""
    store = Store(args.store)
    for name in args.ids:
        store.get(name)
    for name in args.ids:
        store.delete(name)
    return 0
