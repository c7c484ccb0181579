"""``config``: look at, check, compare, convert and save a drafter's config.json; no weights are loaded."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dflash_lab.cli import whatif
from dflash_lab.cli.options import note, read_json
from dflash_lab.config import files
from dflash_lab.config.checks import check, gather
from dflash_lab.config.dialects import DIALECTS
from dflash_lab.config.files import ConfigFile
from dflash_lab.config.patch import apply, compare, diff
from dflash_lab.config.schema import FIELDS, ConfigError, DrafterConfig
from dflash_lab.errors import LabError

PATH_HELP = "a drafter's folder or its config.json"


def register(commands: Any) -> None:
    """Add ``config`` and its commands."""
    group = commands.add_parser("config", help="check, compare, convert and save a drafter's config.json")
    config = group.add_subparsers(title="config commands", metavar="COMMAND", required=True)

    show = _command(config, "show", handle_show, "what the file says, under one set of names")
    show.add_argument("path", type=Path, help=PATH_HELP)

    checked = _command(config, "check", handle_check, "what is wrong with it; exit code 1 on an error")
    checked.add_argument("path", type=Path, help=PATH_HELP)
    checked.add_argument("--target", type=Path, metavar="FOLDER", help="the target's folder: config and tokenizer")
    checked.add_argument("--table", action="store_true", help="look at the target's embedding table too")
    checked.add_argument("--k", type=int, help="drafted tokens a round")
    checked.add_argument("--thinking", choices=("on", "off"), help="the chat template's switch")

    readers = _command(config, "readers", handle_readers, "what each engine reads in it")
    readers.add_argument("path", type=Path, help=PATH_HELP)
    readers.add_argument("--target-layers", type=int, metavar="L", help="the target's number of layers")

    differ = _command(config, "diff", handle_diff, "what two files say differently; --json gives an RFC 6902 patch")
    differ.add_argument("path", type=Path, help=PATH_HELP)
    differ.add_argument("other", type=Path, help="the other one")

    patch = _command(config, "patch", handle_patch, "apply an RFC 6902 patch, made from any drafter")
    patch.add_argument("path", type=Path, help=PATH_HELP)
    patch.add_argument("patch", type=Path, metavar="PATCH.json")
    _add_destination(patch)

    convert = _command(config, "convert", handle_convert, "the same drafter in another dialect")
    convert.add_argument("path", type=Path, help=PATH_HELP)
    convert.add_argument("--to", choices=DIALECTS, required=True)
    _add_destination(convert)

    save = _command(config, "save", handle_save, "write it, read it back, keep the previous version")
    save.add_argument("path", type=Path, help=PATH_HELP)
    save.add_argument("--from", dest="source", type=Path, metavar="FILE", help="take the whole content from this file")
    save.add_argument("--set", action="append", default=[], metavar="FIELD=JSON", help="edit a field (repeatable)")
    save.add_argument("--overlay", action="store_true", help="save to an overlay in the lab's data folder")

    restore = _command(config, "restore", handle_restore, "list earlier versions, or put one back")
    restore.add_argument("path", type=Path, help=PATH_HELP)
    restore.add_argument("version", nargs="?", metavar="N", type=int, help="1 is the one before; none: list them")

    whatif.register(config)


def _command(group: Any, name: str, handler: Any, help_: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = group.add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.")
    command.add_argument("--json", action="store_true", help="JSON on stdout")
    command.set_defaults(handler=handler)
    return command


def _add_destination(command: argparse.ArgumentParser) -> None:
    where = command.add_mutually_exclusive_group()
    where.add_argument("--write", action="store_true", help="save over the file, verified, previous version kept")
    where.add_argument("--output", type=Path, metavar="FILE", help="write to a new file")


def handle_show(args: argparse.Namespace) -> int:
    """Print every field, each layer's attention and the hash."""
    file = files.read(args.path)
    config = DrafterConfig.from_json(file.raw)
    fields = {name: getattr(config, name) for name in FIELDS}
    if args.json:
        identity = {"path": str(file.path), "sha256": file.sha256, "dialect": config.dialect}
        print(json.dumps(identity | {"fields": fields, "extra": config.extra}))
        return 0
    print(f"{file.path}\nsha256 {file.sha256}\ndialect {config.dialect}")
    for name, value in fields.items():
        if value is not None:
            print(f"  {name:26} {_text(value):32} {FIELDS[name].kind}")
    for i in range(config.num_hidden_layers):
        print(f"  layer {i}: {_attention(config, i)}")
    return 0


def handle_check(args: argparse.Namespace) -> int:
    """Print the findings, errors first; 1 when there is an error."""
    file = files.read(args.path)
    thinking = None if args.thinking is None else args.thinking == "on"
    facts = gather(file.raw, file.path.parent, args.target, drafted=args.k, thinking=thinking, table=args.table)
    findings = check(file.raw, facts)
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        for f in findings:
            print(f"{f.severity}: {f.field}: {f.message}")
            if f.why:
                print(f"    {f.why}{f' ({f.source})' if f.source else ''}")
            if f.suggested is not None:
                print(f"    suggested: {_text(f.suggested)}")
        counts = {kind: sum(f.severity == kind for f in findings) for kind in ("error", "warning", "note")}
        print(", ".join(f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in counts.items()))
    return int(any(finding.severity == "error" for finding in findings))


def handle_readers(args: argparse.Namespace) -> int:
    """Print a block a setting and a line a reader; a reason under every value that stands out."""
    from dflash_lab.config.readers import TargetFacts, read_all

    table = read_all(files.read(args.path).raw, TargetFacts(args.target_layers))
    if args.json:
        print(json.dumps(table.to_json()))
        return 0
    for row, cells in table.cells.items():
        print(row)
        for name, cell in cells.items():
            print(f"  {'!' if cell.why else ' '} {name:14} {cell.text}")
            if cell.why:
                print(f"    {'':14} {cell.why}")
    return 0


def handle_diff(args: argparse.Namespace) -> int:
    """Print the differing fields, or the patch from the first to the second."""
    here, there = files.read(args.path).raw, files.read(args.other).raw
    if args.json:
        print(json.dumps(diff(here, there)))
        return 0
    for difference in compare(here, there):
        print(f"{difference.field}: {_text(difference.here)} -> {_text(difference.there)}")
    return 0


def handle_patch(args: argparse.Namespace) -> int:
    """Apply a patch and print or write the result."""
    file = files.read(args.path)
    return _deliver(args, file, apply(read_json(args.patch), file.raw))


def handle_convert(args: argparse.Namespace) -> int:
    """Convert and print or write the result."""
    file = files.read(args.path)
    return _deliver(args, file, DrafterConfig.from_json(file.raw).to_json(args.to))


def handle_save(args: argparse.Namespace) -> int:
    """Save new content or edited fields."""
    file = files.read(args.path)
    if not args.source and not args.set:
        raise LabError("There is nothing to save", "Give --from FILE or --set FIELD=JSON")
    if args.overlay:
        file = files.overlay(file)
    raw = files.read(args.source).raw if args.source else file.raw
    if args.set:
        raw = DrafterConfig.from_json(raw).edited(**whatif.edits(args.set)).to_json()
    return _report(args, files.save(file, raw))


def handle_restore(args: argparse.Namespace) -> int:
    """List the earlier versions, or put one back."""
    file = files.read(args.path)
    kept = files.versions(file.path)
    if args.version is not None:
        if not 1 <= args.version <= len(kept):
            raise LabError(f"There is no version {args.version} of {file.path}", f"Versions: 1..{len(kept)}")
        return _report(args, files.restore(file, kept[args.version - 1]))
    listed: list[dict[str, Any]] = [
        {"version": i, "replaced": f"{v.when:%Y-%m-%d %H:%M:%S} UTC", "sha256": v.sha256} for i, v in enumerate(kept, 1)
    ]
    if args.json:
        print(json.dumps(listed))
        return 0
    for entry in listed:
        print(f"{entry['version']:3}  replaced {entry['replaced']}  sha256 {entry['sha256'][:12]}")
    if not listed:
        print(f"{file.path} was never saved here: no earlier versions")
    return 0


def _deliver(args: argparse.Namespace, file: ConfigFile, raw: dict[str, Any]) -> int:
    if args.write:
        return _report(args, files.save(file, raw))
    if args.output:
        created = files.create(args.output, raw)
        return _report(args, files.Saved(created, None))
    print(json.dumps(raw, indent=None if args.json else 2, ensure_ascii=False))
    return 0


def _report(args: argparse.Namespace, saved: files.Saved) -> int:
    """Say what is on disk now, read back; how many errors it has goes to stderr."""
    previous = str(saved.previous.path) if saved.previous else None
    if args.json:
        print(json.dumps({"path": str(saved.file.path), "sha256": saved.file.sha256, "previous": previous}))
    else:
        print(f"{saved.file.path} holds sha256 {saved.file.sha256}, read back and compared")
        print(f"previous version: {previous or 'none, nothing was replaced'}")
    errors = sum(finding.severity == "error" for finding in check(saved.file.raw))
    if errors:
        note(f"the saved config has {errors} error{'s' if errors != 1 else ''}: see `config check`")
    return 0


def _text(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _attention(config: DrafterConfig, i: int) -> str:
    try:
        rule = config.attention(i)
    except ConfigError as error:
        return str(error)
    reach = "all positions" if rule.window is None else f"window {rule.window}"
    return f"{'causal' if rule.causal else 'both ways'}, {reach}"
