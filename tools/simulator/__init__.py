"""Runs the service's own processes in one thread, on a virtual clock, against a simulated Kafka.
One seed decides everything that happens.

In the order in which a schedule is made and judged:

    plan.py            the sizes, the settings and the faults of a schedule, from its seed
    fault_kinds.py     the kinds of faults, with their weights
    run.py             runs one schedule and judges it; reduces a schedule that fails
    schedule.py        decides which process runs when: processes as greenlets, the virtual clock
    virtual_clock.py the clock, sleep, threads and random numbers that the service asks for
    system.py          the service's processes, restarted and watched as the supervisor would;
                       child.py: one of them; service_settings.py: what they are set to
    clusters.py        two clusters, their topics, the writers at the source
    candidates.py      several identical source clusters
    spark_query.py     stage one's Spark query: its JVM and its micro-batches
    spark_task.py      the attempts of its tasks, and their faults
    envelope_writer.py what an attempt writes: the contract of stage one's sink
    compiled_path_twin.py
                       stands for stage two's C function
    kafka/             the clusters and confluent-kafka's clients (compared with real brokers:
                       tests/broker/test_simulated_kafka.py)
    fault_injector.py  injects faults into requests and envelopes
    process_faults.py, source_faults.py, source_losses.py, replica_faults.py,
    intermediate_faults.py, destination_faults.py, group_faults.py
                       inject faults into processes, clusters and topics, and say which exit codes
                       of the service each fault allows or requires
    fault_helpers.py   what those of clusters and topics have in common
    operator.py        stops the service, changes something, recovers frontiers, starts it again
    record_filter.py   which records a filtered copy has
    judge.py           what must be true of the copy after every step;
                       partition_copy.py: of one partition
    frontier_judge.py  what must be true of every committed frontier
    metrics_judge.py   what must be true of the metrics of the service
    log_reader.py      reads the logs of the clusters directly, without a request
    planted_defects.py known defects, put into the service to show that the simulator finds them

These are not simulated, so the simulator finds no defect in them: commands other than `reo
recover`, mappings, PostgreSQL, `source.start` with offsets or a time, the supervisor's process
(what it decides is), security, quotas, stage two's C function and the sink's Java. When the
destination loses its newest records shortly before or after another fault, the service may go on:
other records can take their offsets before the service checks.
"""
