#!/usr/bin/env bash
# MASTER=spark://HOST:7077 standalone/submit.sh JOB [ARGUMENT...]: run a job on a Standalone cluster, driven from here.
# pyspark-mtl has to be installed on every machine of the cluster, for the Python at the path of PYSPARK_PYTHON.
set -euo pipefail
jobs=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$(command -v python)}"

# The checkpoint and all files have to be on storage that every machine sees at the same path.
exec spark-submit --master "$MASTER" \
    --conf spark.executor.memory="${EXECUTOR_MEMORY:-2g}" \
    "$jobs/$1" "${@:2}"
