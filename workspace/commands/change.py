"""`fedlib set KEY=VALUE`: change one value in params.yaml and leave every other byte, comment and anchor as it is."""

from __future__ import annotations

import io

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode

from fedlib.errors import ConfigError, meant
from fedlib.files import write_whole
from fedlib.settings import params
from fedlib.settings.reading import parse
from fedlib.settings.schema import SCALES


def set_value(key: str, value: str) -> tuple[str, list[str]]:
    """Set the value of a dotted key, or give it one where its mapping has none of its own.

    A key may contain dots, as `alpha = 0.1` does. Returns the old value ("": none), and the entries that change with
    it, which are several where they share a block (`&name`).

    Raises:
        ConfigError: there is no such place, or the value is no setting there.
    """
    path = params.PARAMS
    text = path.read_text(encoding="utf-8")
    node, remaining, steps = YAML(typ="safe", pure=True).compose(io.StringIO(text)), key, 0
    while remaining and isinstance(node, MappingNode):
        entries = {name.value: entry for name, entry in node.value}
        step = max((name for name in entries if f"{remaining}.".startswith(f"{name}.")), key=len, default="")
        if not step:
            break
        node, remaining, steps = entries[step], remaining[len(step) + 1 :], steps + 1
    if isinstance(node, MappingNode):
        names = [name.value for name, _ in node.value]
        if not remaining:
            raise ConfigError(f"{key} has the keys {', '.join(names)}; name one of them.")
        if steps < 2:
            raise ConfigError(f"{path.name} has no {key!r}; {meant(remaining.split('.')[0], names)}")
        earlier, changed = "", _added(text, node, remaining, value)
    elif remaining:
        raise ConfigError(f"{path.name} has no {key!r}: what stands before {remaining!r} is a value.")
    else:
        earlier = text[node.start_mark.index : node.end_mark.index]
        changed = text[: node.start_mark.index] + value + text[node.end_mark.index :]
    entries = _differing(text, changed)
    write_whole(path, changed.encode())
    return earlier, entries


def _added(text: str, node: MappingNode, name: str, value: str) -> str:
    """The text with one more key in a mapping, as its first."""
    first = node.value[0][0].start_mark
    if node.flow_style:
        return f"{text[: first.index]}{name}: {value}, {text[first.index :]}"
    return f"{text[: first.index]}{name}: {value}\n{' ' * first.column}{text[first.index :]}"


def _differing(earlier: str, after: str) -> list[str]:
    """The entries of params.yaml that differ between two texts, once those of the second have been checked."""
    name = params.PARAMS.name
    old, settings = parse(earlier.encode(), name), params.Experiments(parse(after.encode(), name))
    settings.scale_of(None)  # that there is such a scale
    entries = []
    for section, values in settings.raw.items():
        if not isinstance(values, dict):
            entries += [section] * (values != old[section])
            continue
        entries += [
            f"{section}.{entry}" for entry, value in values.items() if value != old[section].get(entry)
        ]
    for experiment in settings.names:
        for scale in SCALES if f"experiments.{experiment}" in entries else ():
            settings.runs(experiment, scale)
    return entries
