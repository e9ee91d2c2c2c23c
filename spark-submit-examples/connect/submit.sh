#!/usr/bin/env bash
# connect/submit.sh JOB [ARGUMENT...]: run a job on a remote Spark, at SPARK_REMOTE=sc://HOST:15002.
#
# The job is a plain Python program: the same file, without spark-submit. Paths that it names are the server's.
set -euo pipefail
jobs=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

export SPARK_REMOTE="${SPARK_REMOTE:-sc://127.0.0.1:15002}"
exec python "$jobs/$1" "${@:2}"
