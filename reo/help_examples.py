"""The examples with which each command's `--help` begins, by its words."""

from __future__ import annotations

EXAMPLES = {
    "": """\
  reo check                      can the service run, and what would it do
  reo run --settings reo.toml    run both stages; settings also come from the environment
  reo run --topic a=b --topic '^logs-.*=all:3'   several topics, patterns, mappings (REO_APPLICATION
                                                 must be set then)
  reo status --watch             offsets, lags and rates of every partition
  reo COMMAND --help             examples of one command
""",
    "check": """\
  reo check                      one line for each check: ok, warning or error, and what to do
  reo check --json | jq '.findings[] | select(.level != "ok")'
  reo check && reo run           run only when there is no error

Prints also what would be created and where the copy would begin. Exit code 0: no errors (warnings
do not count); else the code of the first error, with which the service would end.
""",
    "run": """\
  REO_SOURCE_BOOTSTRAP_SERVERS=a:9092 REO_SOURCE_TOPIC=orders \\
    REO_DESTINATION_BOOTSTRAP_SERVERS=b:9092 reo run
  reo run --settings reo.toml    the same from a file
  reo run --stop-at-end          copy the records that exist at the start, then end with exit code 0
  reo run deduplicator           stage two alone, for example on its own machine

Runs until SIGTERM or SIGINT (exit code 0; 143 with --stop-at-end), or until an error needs an
operator: the exit codes are in docs/reference.md.
""",
    "status": """\
  reo status                     every partition: source end, stage one, stage two, lags, rates;
                                 members of the group; open transactions
  reo status --watch --json      a JSON object every two seconds

Reads only the clusters, so it works from any machine that reaches them. What only the service knows
(the last error, whether stage one runs) is printed as unknown. Exit code 0: the clusters could be
read, whatever the state is.
""",
    "lag": """\
  reo lag                        each stage and both together, per partition and in total
  reo lag --max-seconds 60       exit code 36 when a record has waited longer
  reo lag --max-records 100000 --json

Records are counted in offsets; seconds are how long the first waiting record has been there, at the
source by its own timestamp.
""",
    "heartbeat": """\
  reo heartbeat reo-heartbeat    each second: how old the newest heartbeat is that has arrived, and
                                 how long it took
  reo heartbeat reo-heartbeat --port 7082    also as reo_heartbeat_record_age_seconds at /metrics

The topic is one that nobody else needs: create it at the source, with one partition, and add it to
the topics of the service. The command needs to write it there, and to read its copy.
""",
    "pause": """\
  reo pause orders invoices      read no more of these topics; also while the service runs

The service follows within seconds, and remembers it when it is started again. What is copied stays.
Exit code 2: no rule copies the topic.
""",
    "resume": """\
  reo resume orders              go on where the copy is

What the source has deleted meanwhile is missed then, with exit code 20.
""",
    "verify": """\
  reo verify                     every record of both topics, per partition, in order; the first
                                 difference of each with its offsets
  reo verify --resume verified.json   note what was compared, and continue from there the next time
  reo verify --wait 60           give a copy that runs a minute to catch up first

A topic with cleanup.policy=compact is compared by the newest record of each key. Exit code 0:
equal; 30: a difference; 31: a route with a mapping, a filter or several source topics cannot be
compared.
""",
    "recover": """\
  reo recover                    what the group says, what the data says, and what would be
                                 committed
  reo recover --apply            commit it; stop the service before

Exit code 22: the data does not tell the frontier either; 28: a transaction hangs, and the message
has the command that aborts it; 29: the service runs; 30: the destination is not the source's copy.
""",
    "topics": """\
  reo topics                     where the destination's topic configurations differ from the
                                 source's
  reo topics --apply             change them, also while the service runs

The service itself changes at each start what the setting topics.sync names.
""",
    "inspect": """\
  reo inspect                    the last ten envelopes of each intermediate partition: epoch, what
                                 they cover of the source, number of records
  reo inspect --topic orders --partition 3 --from 120 --count 50 --records
  reo inspect --json | jq 'select(.foreign)'     a JSON object for each envelope

The service deletes envelopes once they are committed at the destination.
""",
    "config init": """\
  reo config init > reo.toml     every setting, with its meaning and default; two clusters and a
                                 topic are all that has to be set
""",
    "config show": """\
  reo config show                every setting, its value, and where it comes from
""",
    "config import": """\
  reo config import relay.toml > reo.toml    kaf-relay's configuration as a settings file; keys
                                             without a counterpart go to standard error
  reo config import config.yaml > reo.toml   kafka-reo's configuration
  reo config import mm2.properties --flow 'A->B' > reo.toml    a flow of MirrorMaker 2
""",
    "offsets translate": """\
  reo offsets translate --group billing           per partition: billing's offset at the source, and
                                                  the same position at the destination
  reo offsets translate --group billing --apply   commit it at the destination; stop billing's
                                                  consumers before, start them there after

The position is exact: from there to the end of the copy both sides are compared record by record.
The service may run. Exit code 0: all partitions with an offset are translated; 32: one has no such
position (yet, or any more); 30: the copy differs; 31: the route is not one to one; 33: the group
has members at the destination; 28: offsets are pending. Then nothing is committed.
""",
    "offsets sync": """\
  reo offsets sync --groups 'shop-.*'    translate the offsets of these groups and commit them at
                                         the destination, once
  reo offsets sync --groups '.*' --interval 10   again every ten seconds, until Ctrl-C (exit code
                                                 130)

A group with members at the destination is left alone, and none is moved back there. A partition
where the group has read what is not copied yet keeps its offset until a later round. Exit codes as
of `offsets translate`; 12: an ACL is missing. The service does the same with the setting
offsets.sync_groups.
""",
    "acls": """\
  reo acls                       the topics' ACLs on both clusters, and which would be created
  reo acls --apply               create them at the destination: every DENY first, then who may read
  reo acls --apply --with-write   also who may write, for the move itself

Nobody is allowed more at the destination than at the source. Needs Describe on both clusters, and
Alter on the destination with --apply.
""",
    "cutover plan": """\
  reo cutover plan                        who writes and reads the topics, how far the copy is, and
                                          what `cutover run` would do
  reo cutover plan --topic orders --groups 'shop-.*' --json

Exit code 0: the clusters could be read, whatever the state is.
""",
    "cutover run": """\
  reo cutover run                         wait for producers, copy, consumers and service to be
                                          done, verify, translate all groups
  reo cutover run --deny-writes           deny everybody to write to the topics at the source (an
                                          ACL), instead of waiting only
  reo cutover run --resume verified.json   compare from where `reo verify --resume verified.json`
                                           stood

May be interrupted or killed anywhere, and run again. It says when to stop the service, and waits.
Exit code 0: the topics have moved; 38: a step is not possible, or the producers wrote again; 30:
the copy differs; 32, 33: a group cannot be translated, or is busy; 130: Ctrl-C.
""",
    "cutover back": """\
  reo cutover back                        remove the DENY of `cutover run --deny-writes`, and undo
                                          the move, or set up the copy in the other direction

As long as nothing was written at the destination, everything goes on at the source as before: start
the service again. Otherwise start a service with the settings of source and destination exchanged,
which begins where this copy has ended, and move with it. Exit code 38: records were written on both
sides.
""",
    "setup": """\
  reo setup                      fetch the jars of Spark's Kafka connector from Maven Central, by
                                 checksum, and archive Spark's classes
  reo setup --from /media/jars   without a network: the jars from a folder, by the same checksums

Run it once, as the user that runs the service, after reo was installed or upgraded (`pipx install`,
`uv tool install`). It needs Java 17 or 21. Jars and archive, 190 MB, go to REO_JARS, or to
$XDG_DATA_HOME/reo (~/.local/share/reo). It also says whether stage two has its compiled path.
""",
    "completion": """\
  eval "$(reo completion bash)"            in ~/.bashrc
  eval "$(reo completion zsh)"             in ~/.zshrc, after compinit
  reo completion fish > ~/.config/fish/completions/reo.fish
""",
    "executor": """\
  reo executor                   in a pod, with the environment that Spark gives its executors

With replicator.master=k8s://… Spark starts executors of stage one in pods of reo's image, with this
one argument. Exit code 2: this is not such a pod.
""",
}
