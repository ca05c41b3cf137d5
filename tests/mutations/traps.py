"""What others fell into: the rows that every replicated log must prove it does not repeat.

Each row names who met the trap first and what we must do. A row applies as soon as the code that could fall into it
exists; one that does not apply yet says why. `tests/tidy` holds that every row that applies has a planted bug.
"""

from __future__ import annotations

from typing import NamedTuple


class Trap(NamedTuple):
    trap: str
    source: str
    we_must: str
    not_yet: str = ""
    """Why the trap cannot be met here yet; empty if it applies."""


TRAPS: dict[str, Trap] = {
    "coordinator-hash": Trap(
        "a group or a transactional id is looked for in another partition than it was stored in",
        "our own hash before decision 0055; in Kafka, adding partitions to __consumer_offsets hides positions",
        "the cluster says for good which hash it has; every path of every broker computes with that one",
    ),
    "schema-validation": Trap(
        "a topic takes a record whose schema its readers cannot find, or rejects one that was registered just before",
        "Confluent's and Redpanda's brokers, which cache what is registered",
        "judge by the topic of schemas itself, read to its end before an id is rejected, and only by what is committed",
    ),
    "http-guard": Trap(
        "an HTTP service does for a client, or for a page in a browser, what the cluster would refuse it",
        "DNS rebinding (CVE-2018-1002103), CSRF, Kafka Connect's REST API without rights of its own",
        "every route declares a right, callers are proven by a login, rules have an age, Host and Origin are checked",
    ),
    "console": Trap(
        "a page shows a visitor what the cluster would not, or a page of another site changes something",
        "consoles for Kafka with one user for all visitors; stored markup in record values",
        "talk to the cluster as the visitor, keep answers by user, demand the session's token, mask on the server",
    ),
    "contracts": Trap(
        "a file that is applied deletes more than was meant, locks its applier out, or misses what was changed by hand",
        "Terraform's providers for Kafka, kafka-gitops: destroy on removal, drift",
        "name what a plan takes away and ask for it; keep the applier's rights; compare a named topic as a whole",
    ),
    "share-delivery": Trap(
        "a task of a share group is delivered again after it was done, to two at once, or never again",
        "KIP-932",
        "an acknowledgement counts when it is stored; what is held ends with its lock, its session or its leader",
    ),
    "share-poison": Trap(
        "a record that kills its consumers takes the records beside it to the delivery limit",
        "KIP-932, KAFKA-19903",
        "the first record under a lock that timed out comes alone, and records that were delivered often come in ever "
        "smaller parts",
    ),
    "share-dead-letters": Trap(
        "a record that a share group gave up has two copies in the dead-letter topic, or none",
        "KIP-1191, which allows duplicates",
        "one decision commits copies and what they cover; a leader reads that, proves that it leads, and then writes",
    ),
    "redrive": Trap(
        "a redrive that is killed, or run beside another, writes dead letters twice or loses them",
        "redrive scripts that commit offsets apart from what they write",
        "one transaction writes the copies and marks what they are of; the next command fences, then reads the marks",
    ),
    "share-waiting": Trap(
        "a record that must wait comes early, out of order or never, or holds up records that need not wait",
        "Pulsar's delayed delivery (one far date keeps its ledger; a maximum came with PIP-315) and Key_Shared",
        "due times and keys are read from the log again by each leader; what waits is not in flight, and has a limit",
    ),
    "share-state-epoch": Trap(
        "a late request to make the state of a share partition begins it again while it is being read",
        "Kafka's InitializeShareGroupState, which fences only lower state epochs",
        "a request whose forerunner may still be under way has a higher epoch",
    ),
    "share-conversation": Trap(
        "a share group reads a partition of which the share coordinator has no state, or had it deleted",
        "KIP-932",
        "only initialised partitions are assigned, and a group asks the share coordinator for one thing at a time",
    ),
    "queue-worker": Trap(
        "a worker acknowledges what it no longer holds, loses tasks that it did, or keeps what others could do",
        "KIP-932 clients, RabbitMQ consumers with a prefetch",
        "what is held belongs to a session; locks are renewed, refused acknowledgements sent one by one, stops release",
    ),
    "parallel-offsets": Trap(
        "a consumer that works in parallel commits past a record that is not done, or works again on what was done",
        "Confluent Parallel Consumer, which drops the map of a commit that is too long",
        "commit the lowest unfinished offset, keep finished ones above it, and take no more than the metadata can hold",
    ),
    "sasl-login": Trap(
        "a login is replayed, or tells which users exist",
        "CVE-2024-56128, CVE-2021-38153, Kafka's own SCRAM server",
        "the whole nonce is compared, secrets in constant time; an unknown user fails where a wrong password does",
    ),
    "retention-lock": Trap(
        "records that are to be kept for a time are deleted by another way",
        "object stores whose lifecycle rules or administrators removed locked versions",
        "size, time, DeleteRecords and DeleteTopics ask the lock, and it is never lowered",
    ),
    "audit-chain": Trap(
        "a chain of hashes does not show a change, or breaks where nothing was changed",
        "ledgers that hash what a CRC covers already, and chains that a new leader begins again",
        "each hash is over all bytes before it; a chain goes on from its last anchor, and is over what is committed",
    ),
    "audit": Trap(
        "an audit loses lines in silence, tells a change twice, or tells secrets",
        "Kafka's own lack of one; audit plug-ins that drop events when their queue is full",
        "lines are kept until they are committed, and what is lost is counted and told; one node tells of a change; "
        "values of secret and unknown settings are hidden",
    ),
    "sasl-session": Trap(
        "a session outlives its credential, changes its owner, or is served before it begins",
        "KIP-368, CVE-2017-12610",
        "the gate decides about every request until the login is done, and again where a session has an end",
    ),
    "truncation": Trap(
        "truncation to the high watermark loses or forks data",
        "KIP-101, KIP-279",
        "truncate only by leader epoch and its end offset; the epoch file is flushed and truncated with the log",
    ),
    "client-epoch": Trap(
        "a client does not see a truncation",
        "KIP-320",
        "fence old and unknown leader epochs on Fetch, ListOffsets and OffsetForLeaderEpoch",
    ),
    "offset-not-available": Trap(
        "offsets go back after an election",
        "KIP-207",
        "OFFSET_NOT_AVAILABLE until the new leader's high watermark has passed the start of its epoch",
    ),
    "last-replica": Trap(
        "the last replica standing comes back from an unclean shutdown",
        "KIP-966",
        "a clean-shutdown marker; the high watermark does not move while the in-sync set is below the minimum",
    ),
    "eligible-leaders": Trap(
        "a change of min.insync.replicas takes the eligible leaders, or a leader commits without them",
        "KIP-966",
        "the eligible leaders stay until the leader has asked for its set; only the metadata log says which they are",
    ),
    "replaced-disk": Trap(
        "a broker with a new disk is in sync and may never lead, or leads with nothing",
        "KIP-858",
        "the broker says where its replicas are, in its present epoch; an empty copy leaves the last known leaders",
    ),
    "rebooted-broker": Trap(
        "a rebooted empty broker enters the in-sync set by a late AlterPartition",
        "KIP-903, KIP-841",
        "broker epoch of each member; fenced and shutting-down brokers are refused",
    ),
    "isr-race": Trap(
        "leader and controller disagree on the in-sync set",
        "KIP-497",
        "compare-and-set of the partition epoch; the leader counts the maximal set (committed and pending)",
    ),
    "zombie": Trap(
        "a broker or leader that was fenced goes on",
        "KIP-631, KIP-570",
        "reject old broker and leader epochs; a fenced leader acknowledges nothing with acks=all",
    ),
    "buried-alive": Trap(
        "a broker that lives is held for dead, because a connection broke",
        "our own simulation",
        "nobody is dead whose machine has not refused a connection, twice, with no heartbeat in between",
    ),
    "stale-answer": Trap(
        "an answer that is late or came twice is taken for the present one",
        "our own simulation",
        "match an answer to the offset and epoch that were asked; one fetch in flight",
    ),
    "fetch-session": Trap(
        "a fetch session of somebody else, or an old turn of it",
        "KIP-227",
        "check the session epoch, bound the slots, prefer followers",
    ),
    "unclean-election": Trap(
        "a replica outside the in-sync set leads",
        "unclean.leader.election.enable",
        "only where a topic says so",
    ),
    "follower-reads": Trap(
        "a reader at a follower sees what an election could take back",
        "KIP-392",
        "never above the high watermark",
    ),
    "recreated-topic": Trap(
        "a topic is made again under the same name",
        "KIP-516",
        "topic id in every path and directory; strays are removed",
    ),
    "zombie-member": Trap(
        "a member that was fenced commits offsets",
        "KIP-447, KIP-848",
        "a position is moved by a member of the present generation or epoch only, and by who sits in its seat",
    ),
    "coordinator-memory": Trap(
        "the state of a coordinator was in its memory only when another was elected",
        "Redpanda #6018",
        "log first; answer when it is below the high watermark",
    ),
    "coordinator-fields": Trap(
        "a field of the coordinator's state is lost on a failover",
        "KAFKA-20310",
        "every field survives being written and loaded",
    ),
    "owned-twice": Trap(
        "a partition is given to a member while another still owns it",
        "KIP-848",
        "it is free when its owner has said so, or was fenced; not before",
    ),
    "holds-on": Trap(
        "a member that was told to give up a partition never does, and nobody else gets it",
        "KIP-848",
        "it is fenced when its rebalance timeout is over, however much it says that it lives",
    ),
    "coordinator-sessions": Trap(
        "a member dies with its coordinator, and nobody misses it",
        "what Kafka does when it loads a group",
        "whoever loads a group begins the sessions of its members anew",
    ),
    "late-end": Trap(
        "a late EndTxn commits or aborts the next transaction",
        "KIP-890, KAFKA-17754, the Jepsen report on Bufstream",
        "each end raises the epoch; what comes with the one before is a repetition or is fenced",
    ),
    "torn-batch": Trap(
        "the output of a batch with many writers is committed in part, twice, or not at all",
        "retries, speculation and restarts of Spark",
        "one record decides all of a sink's transactions, once for each batch; each is carried out from there",
    ),
    "guessed-past": Trap(
        "a table as of a moment is told from a log that no longer has all of it, or from another log",
        "our own review",
        "every record between is there, and none that is gone may have been later; else refuse in a sentence",
    ),
    "unfinished-fold": Trap(
        "what was read before a refresh failed is taken for the state, and a deleted row is back",
        "our own review",
        "positions and rows move together, and a fold with gaps is thrown away before the next is tried",
    ),
    "key-not-found": Trap(
        "a row is not found, or another one is, by the key that it shows",
        "our own review",
        "compare what keys mean; bytes that a key could be written as are tried first and must mean the same",
    ),
    "split-reads": Trap(
        "a log that is read in parts is not what one reader of all of it sees",
        "splits and retries of Spark's tasks",
        "cut by offset, leave out by the list that came with the records, and use no answer to another's request",
    ),
    "hanging-transaction": Trap(
        "a transaction that nobody ends holds readers up for ever",
        "KAFKA-9144, KIP-664, KIP-890",
        "a transaction begins on a partition only if its coordinator knows of it, and is aborted after its timeout",
    ),
    "early-marker": Trap(
        "a marker is written for a decision that the next coordinator does not know",
        "KIP-98",
        "the decision is committed before anybody hears of it",
    ),
    "moved-marker": Trap(
        "a marker meets a leader, or comes from a coordinator, that has moved",
        "KIP-98",
        "look up and try again until it is written; a partition refuses older coordinators",
    ),
    "marker-retry": Trap(
        "a strict check of epochs refuses a marker that comes again, for ever",
        "KAFKA-19999, KIP-1228",
        "with its own epoch and no open transaction a marker is a repetition",
    ),
    "last-stable-offset": Trap(
        "a reader of committed records sees what an election could still decide otherwise",
        "KIP-98",
        "a transaction counts as undecided until its marker is below the high watermark",
    ),
    "aborted-index": Trap(
        "what was aborted is not known any more after a restart, a cut, or a change of leader",
        "KIP-98",
        "every replica notes it by itself, and a log that is cut forgets what lay behind the cut",
    ),
    "pending-offsets": Trap(
        "positions of an open transaction are seen, or are not waited for",
        "KIP-447",
        "they count from the marker on; who asks for stable ones only waits for it",
    ),
    "producer-expiry": Trap(
        "a producer is forgotten in the middle of its transaction",
        "KIP-854",
        "never while a transaction is open",
    ),
    "sequence-wrap": Trap(
        "sequences end",
        "KIP-360",
        "behind the largest comes 0",
    ),
    "compacted-transactions": Trap(
        "compaction removes markers too soon, or records of an open transaction",
        "KIP-534",
        "a delete horizon in the batch; clean only below the last stable offset",
    ),
    "lost-tombstones": Trap(
        "a tombstone goes before readers and replicas have had it, and what it deleted comes back",
        "KIP-534",
        "it stays for delete.retention.ms after the first cleaning that met it; a replica that missed one begins again",
    ),
    "forgotten-sequence": Trap(
        "compaction removes the last batches of a producer, and its next one or a retry is refused or taken twice",
        "KAFKA-5413",
        "what may come again stays, without records, for as long as its producer is known",
    ),
    "torn-swap": Trap(
        "a crash between the old segments and the new one leaves both, neither, or half of each",
        "what Kafka's log loader mends",
        "complete and synced before it is named, named before the old ones go; a start finishes it or takes it back",
    ),
    "forgotten-too-soon": Trap(
        "retention takes what is not committed, or what it took comes back",
        "Kafka's log-start-offset-checkpoint",
        "only below the high watermark, and where a log starts is on disk before anybody sees it",
    ),
    "bit-rot": Trap(
        "a bit that changed on disk is served, or replaces the sound copies of others",
        "the Jepsen report on NATS, TigerBeetle",
        "what a process found on disk is checked before it is first given to anybody",
    ),
    "tiered-transactions": Trap(
        "the list of aborted transactions comes from here, the records from a tier",
        "Redpanda #7043, KAFKA-17801",
        "one source decides both",
    ),
    "tiered-lineage": Trap(
        "a reader gets records from the store that an election took back, or records that another offset names",
        "KIP-405, whose leaders look segments up by offset and epoch for this reason",
        "find a segment by epoch and offset, and check the epoch of each batch that is sent",
    ),
    "tiered-deletion": Trap(
        "local records go that the store lacks, deleted ones come back, or objects stay that no reader can reach",
        "KIP-405, and the failure table of our own design",
        "delete locally below the copied offset only; write the start down first; record a copy before its upload",
    ),
    "tiered-compaction": Trap(
        "compaction of the store loses the newest value of a key, brings a deleted one back, or serves two versions",
        "our own design: no other broker compacts what is tiered",
        "one record swaps the versions, and only if the old ones are all readable; the store alone drops tombstones",
    ),
    "tiered-shared-objects": Trap(
        "what two topics share is deleted with one of them, or stays when both are gone",
        "shallow clones of Delta tables after VACUUM of their source",
        "one order decides between a clone and a deletion; the last topic that names an object deletes it",
    ),
    "tiered-restore": Trap(
        "a restored cluster serves half an object, or what an election took back; a reader deletes objects",
        "the failure table of our own design",
        "restore finished segments of the leader's log only; a cluster that reads another's store writes nothing",
    ),
    "object-commits": Trap(
        "two leaders write into one log that is kept elsewhere: an offset names two records, or a batch is there twice",
        "the failure table of our own design: a leader that is stopped between the write and its commit",
        "one order for claims and commits, the same rule for every reader, and numbers that a process uses once",
    ),
    "object-acknowledgement": Trap(
        "a record is acknowledged before it is in the store and committed",
        "write-behind caches in front of object stores",
        "count what is committed, and commit what is written",
    ),
    "object-orphans": Trap(
        "the collector deletes an object that a slow commit names, or that a reader needs",
        "the failure table of our own design; Icechunk and Hudi, which collect by age alone",
        "refuse the commit first, by the log; watch by one's own clock; release what segments hold, and no more",
    ),
    "tiered-damage": Trap(
        "an object that is not what was written is served, and a client takes it for records",
        "object stores behind caches and proxies",
        "check each block as a whole, also what the checksum of a batch leaves out",
    ),
    "flipped-on-the-wire": Trap(
        "a bit that flipped on the way is written to a log",
        "CORRUPT_MESSAGE",
        "check the CRC of every batch, from producers and from leaders, before it is written",
    ),
    "unread-answers": Trap(
        "answers that no client reads fill the memory of a broker",
        "our own review",
        "read batches when the socket takes them; bound all other answers that wait, and close the stalest connection",
    ),
    "late-admin-answer": Trap(
        "an administrator's request without a controller hangs, or its client is told to look for another one",
        "KIP-590",
        "answer REQUEST_TIMED_OUT at the request's own timeout; brokers, not clients, find the next controller",
    ),
    "moving-start": Trap(
        "what is read again begins at another record than the first time",
        "our own review",
        "settle where a query begins before its first batch, and keep it; where it is not known, refuse",
    ),
    "emptied-table": Trap(
        "a rebuild removes most rows of a table without a word",
        "our own review",
        "count what a switch removes before it is begun; more than a tenth needs a yes of its own",
    ),
    "lag-of-offsets": Trap(
        "a group that has read everything seems behind, because offsets are counted as records",
        "every exporter of offsets",
        "count what a reader gets, in every place that tells of lag; where only offsets are known, say so",
    ),
    "raft-vote": Trap(
        "a voter votes twice in one epoch, or for a candidate whose log is behind",
        "Raft 5.2, 5.4.1",
        "one vote per epoch, on disk before the answer leaves; the log of the candidate must reach as far",
    ),
    "raft-commit": Trap(
        "entries of an older epoch count as committed",
        "Raft 5.4.2, figure 8",
        "the high watermark moves only past an entry of the leader's own epoch",
    ),
    "raft-flush": Trap(
        "an entry counts before it is on disk",
        "KIP-595",
        "the leader counts its flushed end; a follower flushes before its next Fetch",
    ),
    "raft-divergence": Trap(
        "a follower goes on from a log that has forked",
        "KIP-595",
        "last fetched epoch in every Fetch; truncate to where both agree",
    ),
    "raft-pre-vote": Trap(
        "a voter that was away unseats a leader that is well",
        "KIP-996",
        "ask before standing; who hears its leader refuses",
    ),
    "raft-resign": Trap(
        "a leader without a majority goes on",
        "KAFKA-15489",
        "resign when no majority has fetched within the timeout",
    ),
    "stalled-loop": Trap(
        "a pause of the process looks like a dead broker, and sessions end",
        "stop-the-world pauses of the JVM; our own watchdog",
        "long work is done in shares, by workers or in threads, and the collector walks only what is new",
    ),
    "false-duplicate": Trap(
        "a batch that was refused counts as stored, or is overtaken by the next of its producer",
        "KAFKA-14359",
        "a duplicate is what is known to be stored; an unknown producer in mid-sequence sends its batch again",
    ),
    "idempotence-expires": Trap(
        "a producer that is in use is forgotten, and its retry stored twice",
        "a backfill of old records",
        "expire by the time of the last append, by the broker's clock, after a restart, too; read what arrived first",
    ),
    "producer-flood": Trap(
        "invented producer ids take memory, or the place of producers in use",
        "KIP-936",
        "a limit for each node; forget who is silent for longest, and refuse new ones rather than forget active ones",
    ),
    "poisoned-batch": Trap(
        "one producer's garbage is stored, and every reader of the partition stops at it",
        "Apache Kafka's LogValidator",
        "the leader checks the records of a batch before it stores it, whoever sends it",
    ),
    "overtaken-batch": Trap(
        "a batch that is quick to check overtakes one of the same request that is opened in a thread",
        "our own review",
        "what follows a batch that is opened goes the same way, per partition",
    ),
    "guessed-row": Trap(
        "a record that does not fit its schema becomes a row that no producer wrote: rounded, completed, or with nulls",
        "our own review; from_json of Spark in its permissive mode",
        "one strict rule for keys and values; what does not fit is set aside with the reason",
    ),
    "poison-row": Trap(
        "one row that the sink's topic refuses stops a query for good, for every restart meets the same batch",
        "our own review",
        "a row that cannot be written is kept under a name, or set aside with the reason; the rest goes on",
    ),
    "state-meaning": Trap(
        "state that one function has kept is read by another, and the result is neither's",
        "Spark's check of state schemas, which compares types",
        "keep what state means with each version, compare it before a run, and stop where it differs",
    ),
    "unknown-writer": Trap(
        "something writes rows and is not registered, so that a second start writes them again",
        "our own review of pipelines",
        "register before the first batch, and never forget what has written",
    ),
    "page-of-traces": Trap(
        "the sentence that says what to do is lost under a page of tracebacks",
        "py4j's log of callbacks",
        "print the sentence; traces only where the user asks for them",
    ),
    "held-view": Trap(
        "a view of a request outlives it in the traceback of a kept error, and its buffer cannot be cut any more",
        "our own simulation",
        "never resize a buffer that was handed out; go on with a new one",
    ),
    "full-disk": Trap(
        "what a full disk refused for a moment is taken for damage",
        "our own simulation",
        "try again; put aside, and copy again, only what may be damaged",
    ),
    "access-rules": Trap(
        "a denial is lost, or a rule is read wider than it was written",
        "CVE-2024-27309",
        "deny first, keep rules by id, compare with an authorizer that looks at every rule after every change",
    ),
    "unchecked-rights": Trap(
        "a request is served to a client that lacks the right, by one of several ways to its handler",
        "CVE-2018-17196",
        "one table for all ways, compared with the answers of Kafka in every version",
    ),
    "remembered-head": Trap(
        "a request is read as another one whose first bytes are the same",
        "our own shortcut for small Produce requests",
        "remember only heads whose meaning follows from their bytes, by names and by ids apart",
    ),
    "quota-entity": Trap(
        "a quota is counted for another entity than the one it belongs to",
        "Kafka's order of eight entities; client ids are made up by clients",
        "one bucket per matched entity: a user's is shared by its clients, a default's by no one",
    ),
    "starved-replication": Trap(
        "quotas of clients slow down replication, and the in-sync set shrinks",
        "KIP-13, KIP-73",
        "charge nothing to followers, brokers and the controller listener",
    ),
    "ignored-throttle": Trap(
        "a client that ignores its throttle time goes on sending",
        "KIP-219",
        "answer first, then do not read the connection for that long",
    ),
    "tls-impostor": Trap(
        "a certificate of the cluster's own authority stands for every node, also one that was stolen from a client",
        "CVE-2018-1288 and its kin; TLS libraries that check the chain and not the name",
        "check the name in the certificate against the host that is connected to",
    ),
    "stale-certificate": Trap(
        "a certificate is renewed on the disk, and the node serves the old one until it has expired",
        "Apache Kafka, which reads stores again only when it is told to",
        "watch the files, and make new contexts for new connections",
    ),
    "held-by-openssl": Trap(
        "a request waits for ever: its last bytes are decrypted already, and the loop waits for the socket",
        "asyncio and every own loop around SSL_read",
        "read until OpenSSL asks for more, and go on after a pause without waiting for the socket",
    ),
    "false-compatible": Trap(
        "a registry calls a schema compatible, and readers meet data that they can not read",
        "Confluent's registry, whose rules for cycles and for oneofs were mended more than once",
        "judge the rules by data: what the old schema writes, the new one must read",
    ),
    "wrong-listener": Trap(
        "a client is sent to an address that only brokers reach",
        "Apache Kafka's KIP-103",
        "answer with the addresses of the listener that the request came in on",
    ),
    "schema-id-reused": Trap(
        "an id means another schema than the one that clients keep under it for ever",
        "Confluent's registry after a hard delete and compaction; Karapace, which forgets a schema's type",
        "keep the largest id in the topic, and look schemas up by all that makes them the same",
    ),
    "schema-comes-back": Trap(
        "a schema that was deleted is there again after compaction",
        "topics that registries of two makers wrote, with keys in two orders",
        "remember each form of a key, and remove all of them",
    ),
    "schema-values": Trap(
        "a value of another schema becomes a row that no producer wrote, or work without end",
        "Avro's readers: lengths and counts that lie, records without bytes inside one another; caches of schema ids",
        "hold each length against the value, each value against its own end, work against its bytes; ask again for ids",
    ),
    "schema-fork": Trap(
        "two registries give one version of a subject, or one id, to two schemas",
        "registries that wait for an old primary instead of fencing it",
        "write in transactions of one id, and decide upon all that was written before",
    ),
    "schema-payload": Trap(
        "a record that a reader can not decode is called good, or is shown and written as something else than it says",
        "tools that show a union without its branch and take the first that fits; deserializers that ignore the rest",
        "judge by another library: its bytes, shown as JSON and encoded again, are the same; count what is left over",
    ),
    "schema-dirty-read": Trap(
        "a client keeps an id for a schema that was never written, and the id is given to another one",
        "registries that change their state first and write it then",
        "decide upon a copy, and change the state by what the topic has",
    ),
    "schema-other-topic": Trap(
        "a registry goes on with the schemas and ids of a topic that was deleted, in the one that has its name now",
        "Confluent's registry, which must be restarted",
        "know the topic by its id and by its offsets, and read it again",
    ),
    "hidden-schema": Trap(
        "a caller reads a schema, or learns of one, that it has no right to see",
        "registries that check the subject in the path, and not ids, references and aliases",
        "one right for each route, and lists and ids that show what the caller sees",
    ),
    "leaked-credentials": Trap(
        "a registry hands the password of a client to any host that calls itself the primary",
        "registries that send writes on to the address which the group names",
        "credentials go out over TLS, to a host whose certificate is trusted for its name",
    ),
    "share-state": Trap(
        "what a share consumer acknowledged is delivered again, or counts although it was never stored",
        "KIP-932",
        "store a leader's epoch before it gets the state; merge by delivery count; prune below needed snapshots only",
    ),
    "connector-lost": Trap(
        "a record of a source or for a sink is lost, though its position says that it is done with",
        "sinks that commit offsets before the write; dead letters that are sent and not waited for",
        "commit behind what the target has stored; positions in the transaction of the records",
    ),
    "connector-doubled": Trap(
        "a task that is thought dead writes beside its successor, or a restart writes again what is there",
        "Kafka Connect without KIP-618; sinks whose offsets are only in the consumer group",
        "fence old tasks first; keep offsets in the target, or names that depend on the records alone",
    ),
    "connector-rights": Trap(
        "a config from HTTP runs a class, reads a file or shows a secret that the owner of the worker did not allow",
        "config providers and class names without a list",
        "classes, paths and variables only by rules of the worker; secrets are never stored or shown resolved",
    ),
    "capture-lost": Trap(
        "a change of a database never comes to the log, though the position says that it is done with",
        "slots that are confirmed before the log has the changes; snapshots apart from their slot; deletes between two",
        "one snapshot for slot and rows; position and records in one transaction; the database learns it behind that",
    ),
    "capture-doubled": Trap(
        "a change of a database comes twice, was rolled back, or comes without the rest of its transaction",
        "Debezium, which delivers at least once, and without the borders of transactions",
        "skip what ends before the stored position, and commit a transaction of the database in one of the log",
    ),
    "capture-shape": Trap(
        "a row is read with the columns of another moment, or a value that was not sent is taken for NULL",
        "schema caches behind ALTER TABLE; TOAST; metadata of the binlog",
        "take the shape from the stream, and tell a value that did not change from one that is null",
    ),
    "replica-table": Trap(
        "a table that follows a topic has another row than its source, though no record was lost",
        "sinks that write Debezium's placeholder for large values; offsets apart from rows",
        "write what the event has and leave the rest; fail where a value is unknown; offsets in the rows' transaction",
    ),
    "outbox-relay": Trap(
        "an event of an outbox is sent twice, out of the order of its key, or never",
        "relays with a position (a sequence number commits late), or with SKIP LOCKED; two relays at a time",
        "what is left in the table is sent in its order by one relay, and the ids of the rows are with the records",
    ),
    "inbox-once": Trap(
        "a message has its effect twice, or not at all, though an inbox was asked",
        "a check and a write apart; ids that are committed before the effect",
        "a unique key of consumer and message decides, in the transaction of the effect",
    ),
    "effects-mark": Trap(
        "effects that ran before run again, or are held back although they never ran",
        "groups that are rewound; members that are cut off; topics that are made again",
        "a mark only grows, is of one topic id, and is stored before the offsets that it covers",
    ),
    "sqlite-shipping": Trap(
        "a restored database is none that there ever was",
        "Litestream, which meets WALs that were begun again, writers that were killed, and files that were replaced",
        "ship whole transactions; go on only where the sum of all pages is right, and compare it in each restore",
    ),
}
