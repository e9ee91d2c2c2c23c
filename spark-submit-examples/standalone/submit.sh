#!/usr/bin/env bash
# MASTER=spark://HOST:7077 standalone/submit.sh JOB [ARGUMENT...]: run a job on a Standalone cluster, driven from here.
#
# PACKED=environment.tar.gz   ship this environment (../pack.sh makes it); without it pyspark-mtl has to be installed on
#                             every machine of the cluster, for the Python at the path of PYSPARK_PYTHON
set -euo pipefail
jobs=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

shipped=()
if [ -n "${PACKED:-}" ]; then
    # Executors unpack it into their working directory. The driver's side of a source runs in the same relative path, so
    # it is unpacked here too.
    [ -d environment ] || { mkdir environment && tar -xzf "$PACKED" -C environment; }
    shipped=(--archives "$PACKED#environment")
    export PYSPARK_PYTHON=./environment/bin/python PYSPARK_DRIVER_PYTHON=./environment/bin/python
else
    export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$(command -v python)}"
fi

# The checkpoint and all files have to be on storage that every machine sees at the same path.
exec spark-submit --master "$MASTER" ${shipped[@]+"${shipped[@]}"} \
    --conf spark.executor.memory="${EXECUTOR_MEMORY:-2g}" \
    "$jobs/$1" "${@:2}"
