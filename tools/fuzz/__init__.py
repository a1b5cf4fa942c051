"""Bad input: whatever bytes arrive, reo accepts them as what they are or refuses them with the one
error that names them.

Three things come from outside and are read by code of ours: envelopes (anybody who may write to the
intermediate topic can send one), the commit metadata of the consumer group (another application may
commit with it), and the settings (people write them). Each has a target in `fuzz.targets`: a
function from bytes to nothing that raises when its invariant does not hold. The invariant is the
first thing in its docstring. The compiled path reads envelopes too: `make fuzz` compares it with
Python's reader, under AddressSanitizer and UndefinedBehaviorSanitizer.

The same functions are run in two ways. `make fuzz SECONDS=60` gives them to atheris, which looks
for inputs that reach new lines of the code under test, from the seeds in `fuzz.seeds`, which are
real encoded values. `tests/unit/tools/test_fuzz_targets.py` gives them mutated seeds from
hypothesis, quickly and always the same ones, and shows that a wrong parser is caught. What atheris
has found is a test in `tests/unit/tools/test_fuzz_findings.py`.

Not looked at here: what librdkafka and the JVM read (the wire, batches, compression);
`tests/e2e/test_bad_input.py` does some of that on real brokers.

    messages.py             consumed records made of bytes, without a broker
    rounds.py               rounds of stage two over them
    targets.py              the invariants
    naive_reading.py        what a frontier is, for one of them
    compiled_forward.py     the compiled path beside Python's reader of envelopes
    collecting_producer.py  what it hands over
    sanitizers.py           how its library is built with sanitizers
    seeds.py                where the fuzzer starts from, and the words it may use
    __main__.py             runs them with atheris
"""
