"""A drafter's config.json: what it says, what each engine reads in it, what is wrong with it, saving it."""
