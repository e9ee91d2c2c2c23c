#!/usr/bin/env bash
# connect/serve.sh [spark-submit options]: run a Spark Connect server, in the foreground, for connect/submit.sh.
#
# It runs the queries, so pyspark-mtl is installed here; its clients need no Java and no pyspark-mtl.
set -euo pipefail
jobs=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

export SPARK_CONF_DIR="${SPARK_CONF_DIR:-$jobs/../conf}"
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$(command -v python)}"

# Only for this machine: a Connect server does not ask for a password. Put a proxy with TLS and tokens before it.
exec spark-submit --master "${MASTER:-local[*,4]}" \
    --class org.apache.spark.sql.connect.service.SparkConnectServer \
    --conf spark.connect.grpc.binding.address=127.0.0.1 \
    --conf spark.connect.grpc.binding.port="${PORT:-15002}" \
    "$@" spark-internal
