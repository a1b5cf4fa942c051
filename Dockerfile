# The image of `reo`: Debian, Java, Python, and everything that the service loads. It downloads
# nothing when it starts, keeps nothing on disk but temporary files in /tmp, and needs neither root
# nor a capability.
#
#   docker build -t reo .
#   docker run -e REO_SOURCE_BOOTSTRAP_SERVERS=source:9092 -e REO_SOURCE_TOPIC=orders \
#       -e REO_DESTINATION_BOOTSTRAP_SERVERS=destination:9092 reo
#   docker run -e … reo verify
#   docker exec CONTAINER reo status
#   … reo executor: what Spark starts in its pods on Kubernetes (docs/how-to/spark.md)
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=0.3.0 \
#       --build-arg REVISION=$(git rev-parse HEAD) .
#
# Both of Docker's builders can build it: no `RUN --mount`, no `# syntax` line that would have to be
# downloaded. Python's packages and the JVM's jars are the ones of the lock files, by checksum;
# Debian's are its newest, for their security updates, unless BASE and its sources say another day.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS base
# man1: Debian's slim images lack the folder into which Java's package links its manual.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        libnss-unknown openjdk-21-jre-headless python3 tini >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/*

# What only the build needs stays in this stage: pip, Ivy, their caches, and the certificates of a
# proxy, if there is one.
FROM base AS build
ARG CA_CERTIFICATES=""
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        ca-certificates python3-venv gcc libc6-dev >/dev/null
# Behind a proxy that opens TLS: --build-arg CA_CERTIFICATES="$(cat its.crt)". One file per
# certificate, or Java sees the first only.
RUN if [ -n "$CA_CERTIFICATES" ]; then \
        printf '%s\n' "$CA_CERTIFICATES" | awk '/-BEGIN/ { n++ } \
            { print > "/usr/local/share/ca-certificates/build-" n ".crt" }' \
        && update-ca-certificates; \
    fi
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_NO_CACHE_DIR=1
WORKDIR /opt/reo
# In this order, so that a change of the code does not fetch Spark again.
COPY requirements.lock requirements-msk.lock ./
COPY build/setup build/compiled-path build/
# Of Spark, what a copy needs: it learns nothing (mllib), asks no Hive, no YARN and no Volcano for
# executors, serves no clients of its own (connect), keeps no state on disk (rocksdb, leveldb), and
# runs on Linux. That is half of Spark's jars, and a third of the image. Kubernetes' part stays: it
# is stage one's scheduler with replicator.master=k8s://…, and `reo executor`, which makes this the
# executors' image too. pip's byte code has times in it: compiled again. With --build-arg MSK=1 it has
# what Amazon MSK with IAM needs.
ARG MSK=""
RUN build/setup runtime \
    && .venv/bin/python -m pip uninstall --quiet --yes setuptools pip \
    && .venv/bin/python -m compileall -q -f --invalidation-mode unchecked-hash .venv/lib \
    && cd .venv/lib/python3*/site-packages/pyspark \
    && rm -rf examples data jars/connect-repl && cd jars \
    && rm -f spark-mllib* spark-graphx* breeze* spire* cats-kernel* algebra* JTransforms* \
        JLargeArrays* lapack* arpack* blas* jts-core* \
        spark-hive* hive-beeline* hive-cli* hive-common* hive-exec* hive-jdbc* hive-metastore* \
        hive-serde* hive-service* hive-shims* datanucleus* derby* \
        volcano-* spark-yarn* spark-connect* spark-pipelines* spark-repl* \
        rocksdbjni* leveldbjni* *-osx-* *-windows-* netty-transport-native-kqueue*
COPY common common
COPY replicator replicator
COPY deduplicator deduplicator
COPY reo reo
COPY LICENSE ./
# Compiled here, because the service may not write beside its code; readable whatever the umask of
# the checkout was.
RUN build/compiled-path && rm deduplicator/compiled_path.c && .venv/bin/python -m reo setup \
    && .venv/bin/python -m compileall -q --invalidation-mode unchecked-hash \
        common replicator deduplicator reo \
    && chmod -R a+rX .

FROM base
ARG BASE
ARG VERSION=""
ARG REVISION=""
LABEL org.opencontainers.image.title="reo" \
    org.opencontainers.image.description="Copies Kafka topics from one cluster to another exactly once, and can show its proof" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.base.name="${BASE}" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
# Hadoop, which Spark logs in with, refuses a user that has no name. libnss-unknown gives one to
# those that OpenShift makes up.
RUN echo 'reo:x:10001:10001:reo:/tmp:/usr/sbin/nologin' >>/etc/passwd \
    && echo 'reo:x:10001:' >>/etc/group
WORKDIR /opt/reo
COPY --from=build /opt/reo/.venv .venv
COPY --from=build /opt/reo/jars jars
COPY --from=build /opt/reo/LICENSE ./
COPY --from=build /opt/reo/common common
COPY --from=build /opt/reo/replicator replicator
COPY --from=build /opt/reo/deduplicator deduplicator
COPY --from=build /opt/reo/reo reo
RUN printf '#!/bin/sh\nexec /opt/reo/.venv/bin/python -m reo "$@"\n' >/usr/local/bin/reo \
    && chmod 755 /usr/local/bin/reo
ENV PATH=/opt/reo/.venv/bin:$PATH PYTHONPATH=/opt/reo PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 7081
# http.client, because urllib would ask a proxy from the environment.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/opt/reo/.venv/bin/python", "-S", "-c", "\
import http.client, os, sys; \
port = int(os.environ.get('REO_METRICS_PORT') or 7081); \
probe = http.client.HTTPConnection('127.0.0.1', port, timeout=4); \
probe.request('GET', '/livez'); \
sys.exit(probe.getresponse().status != 200)"]
# tini hands signals on and buries the dead: the JVM of a stage one that was killed becomes an
# orphan, which only process 1 can wait for, and the supervisor knows none but its own children.
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/reo/.venv/bin/python", "-m", "reo"]
CMD ["run"]
