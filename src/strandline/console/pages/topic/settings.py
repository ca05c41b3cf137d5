"""The settings of a topic: what is in force, where each comes from, and what it means, as `config explain` says it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from strandline.cli.common.plain_words import count, setting_value
from strandline.cli.config.access import ConfigValue, Target, read_entries
from strandline.cli.config.known_settings import explanations
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageQuery, PageTable
from strandline.console.failures import PageFailed
from strandline.console.pages.topic.frame import frame, topic_of
from strandline.console.tables import Row, TableHead

SETTINGS_S: Final = 5.0


def _change(row: Row) -> str:
    text = "" if row["value"] is None else row["value"]
    return "/do/topic-settings?" + urlencode({"topic": row["topic"], "settings": f"{row['setting']}={text}"})


HEADS: Final = (
    TableHead("setting", "Setting", "name", link=_change),
    TableHead("value", "Value"),
    TableHead("meaning", "That is"),
    TableHead("origin", "Set by"),
    TableHead("behind", "Else", hint="What holds if the topic gives its own value back", is_wide=True),
    TableHead("explained", "What it does", is_sorted=False, is_wide=True),
)


async def settings(context: PageContext) -> Mapping[str, Any]:
    """Answer which settings are in force, and why."""
    topic = await topic_of(context)
    entries = await settings_of(context, topic.name)
    shows_all = context.choice("all", ("", "true")) == "true"
    own = [each for each in entries.values() if each.source == 1]
    is_ours = await context.reading.is_ours()
    rows = [_row(topic.name, each, is_ours=is_ours) for each in entries.values() if shows_all or each.is_set]
    answer = "The topic has no settings of its own: brokers' settings and defaults are in force."
    if own:
        answer = f"{count(len(own), 'setting')} of its own: " + ", ".join(sorted(each.name for each in own)) + "."
    return {
        **frame(topic.name, "settings"),
        "answer": answer,
        "all": shows_all,
        "hidden": len(entries) - len(rows),
        "table": context.table(
            HEADS,
            rows,
            caption="Settings",
            searched=("setting", "value", "origin", "explained"),
            sort="setting",
            empty="Every setting has its default.",
        ),
        "command": [
            *("strandline", "config", "get", "--topic", topic.name, "--all"),
            *("--bootstrap-server", context.cluster.bootstrap),
        ],
    }


async def settings_of(context: PageContext, topic: str) -> dict[str, ConfigValue]:
    """Return the settings of a topic by name. Raise PageFailed where a cluster does not tell them."""
    reading = context.reading

    def read() -> dict[str, ConfigValue] | None:
        return read_entries(reading.cluster, reading.cluster.admin(), Target("topic", topic))

    async def ask() -> dict[str, ConfigValue] | None:
        return await reading.shared.in_thread(read)

    found = await reading.know(("topic.settings", topic), ask, SETTINGS_S)
    if found is None:
        raise PageFailed(501, "This cluster does not tell the settings of its topics")
    return found


def _row(topic: str, each: ConfigValue, *, is_ours: bool) -> dict[str, Any]:
    # What a setting does elsewhere is for that cluster to say.
    known = next((one for one in explanations(each.name) if one.owner == "topics"), None) if is_ours else None
    behind = each.fallback(Target("topic", topic)) if each.source == 1 else None
    return {
        "topic": topic,
        "setting": each.name,
        "value": None if each.sensitive else each.value,
        "meaning": setting_value(each.name, each.value) or None,
        "origin": each.source_words,
        "behind": None if behind is None else f"{behind[0]}={behind[1] or ''}",
        "explained": known.doc if known is not None else re.sub(r"<[^>]+>", "", each.documentation),
        "default": known.default if known is not None else None,
        "allowed": known.allowed if known is not None else None,
        "honoured": known.verdict if known is not None else None,
        "survives": known.survives if known is not None else None,
    }


PAGE: Final = ConsolePage(
    name="topic-settings",
    path="/topics/{topic}/settings",
    title="{topic}",
    question="Which settings are in force, where do they come from, and what do they mean?",
    model=settings,
    template="topic/settings.html",
    tables=(PageTable("table", HEADS),),
    queries=(PageQuery("all", "true: defaults as well"),),
    under="topics",
)
MODULE: Final = PageModule(pages=(PAGE,))
