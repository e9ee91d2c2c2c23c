#!/usr/bin/env bash
# emr-serverless/submit.sh JOB [ARGUMENT...]: start a job run of an EMR Serverless application of type Spark.
#
# APPLICATION   the application's id
# ROLE          the ARN of the job's execution role, which may read BUCKET and write the checkpoint
# BUCKET        s3://NAME/PREFIX, the destination of the job, its module and the packed environment
# PACKED        the environment (default: environment.tar.gz), packed in the image of EMR Serverless; see README.md
set -euo pipefail
jobs=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
job=$1 packed=${PACKED:-environment.tar.gz}
shift

aws s3 cp "$jobs/$job" "$BUCKET/$job"
aws s3 cp "$jobs/mtl_job.py" "$BUCKET/mtl_job.py"
aws s3 cp "$packed" "$BUCKET/environment.tar.gz"

# spark.archives unpacks as ./environment for the driver and for every executor.
parameters="--py-files $BUCKET/mtl_job.py"
parameters+=" --conf spark.archives=$BUCKET/environment.tar.gz#environment"
parameters+=" --conf spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON=./environment/bin/python"
parameters+=" --conf spark.emr-serverless.driverEnv.PYSPARK_PYTHON=./environment/bin/python"
parameters+=" --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python"

driver=$(python3 - "$BUCKET/$job" "$parameters" "$@" <<'END'
import json, sys
job, parameters, *arguments = sys.argv[1:]
print(json.dumps({"sparkSubmit": {"entryPoint": job, "entryPointArguments": arguments, "sparkSubmitParameters": parameters}}))
END
)
aws emr-serverless start-job-run --application-id "$APPLICATION" --execution-role-arn "$ROLE" \
    --name "mtl ${job%.py}" --job-driver "$driver"
