"""The web console: a client of any Kafka cluster, which answers questions of people by pages of HTML.

How to add a page
-----------------
1. Write `pages/NAME.py` with a model and a `MODULE`, and add its name to `pages/index.py`:

       async def groups(context: PageContext) -> Mapping[str, Any]:
           found = await context.reading.know("groups", lambda: context.reading.shared.in_thread(read), 5.0)
           rows = [{"group": each.name, "lag": each.lag} for each in found]
           return {"table": context.table(HEADS, rows, caption="Groups", searched=("group",), sort="-lag")}

       MODULE = PageModule(pages=(ConsolePage(
           name="groups", path="/groups", title="Groups", question="Which groups are behind?",
           model=groups, template="groups.html", group="Readers"),))

2. Write `templates/pages/groups.html`: it extends `page.html` and fills `content`. `parts.table(model.table)`,
   `parts.chart`, `parts.command`, `parts.action`, `parts.verdict` are macros of `parts.html`. Foreign text goes through
   `|visible`; escaping is on, and `|safe` is not used anywhere.
3. That is all: `/c/CLUSTER/groups`, its JSON twin `/api/v1/clusters/CLUSTER/groups`, CSV and JSON of every row
   (`?export=csv`), the navigation, and the page of a failure follow. Declare its `tables` and `queries`
   for `openapi`. A model returns plain data that JSON can say.

A parameter of a path (`/topics/{topic}`) is in `context.params`, quoted in links by `context.path("topics", name)` or
`|segment`; it has no slash, so names that may have one go into the query. State is in the URL: `context.query`,
`context.number`, `context.choice`. Several tables of a page have names.

What a model may use
--------------------
`context.reading` reads as the visitor, under the visitor's ACLs. `metadata()`, `state()`, `findings()`, `sizes()`,
`offsets()`, `rates()` are there. `know(key, ask, fresh_s)` keeps any other answer: one question at a time, old answers
while the cluster is silent. `part(...)` is for what a page can do without. Two ways to ask, both in a thread:
`shared.ask(lambda client: ...)` with our own `ClusterClient`; `shared.in_thread(lambda: read(shared.cluster))` with a
reader of the command line, which takes a `Cluster`. Import only modules of `cli` that define no command; move what a
command shares into one. `offers(RequestClass)` tells whether the brokers are ours. Raise `PageFailed(404, "...")` for
what is not there. Values of records pass through `context.masks(topic)` before they get into a model.

How to add an action
--------------------
Declare a `ConsoleAction` (see `pages/topic_create.py`) in the module's `actions`, and link it by
`parts.action("topic-create", "Create topic", {"field": value})`. Form, confirmation, the one POST, its JSON twin, the
token against forgery, the read-only switch and the audit follow. `run` raises what the readers raise, or `PageFailed`.

How to add a stream
-------------------
Declare a `ConsoleStream` whose source yields `StreamEvent`s; `rendered_again` sends a part of a page whenever it
changes (see `pages/overview.py`). In the page: `hx-ext="sse" sse-connect="{{ base }}/live/..."` and `sse-swap="EVENT"`.

Around it: `settings`; `app` puts it together; `routing`, `actions`, `screens` answer requests; `sessions`, `logins`,
`visits` know the visitor; `masking`, `audit`. `strandline.services.console` runs it behind the guard of HTTP services.
"""
