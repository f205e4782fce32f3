#!/bin/sh
# stallscope's check on every node of a Slurm job, and one matrix of all of them:
#   sbatch --nodes=4 stallscope.sbatch
# It needs `stallscope` on the PATH of every node and a folder that all of them see: the one it is submitted from.
#   STALLSCOPE_RESULTS        another folder for the results (stallscope-JOB)
#   STALLSCOPE_CHECK_OPTIONS  further options of the check, such as --quick
#SBATCH --job-name=stallscope
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --exclusive
#SBATCH --time=15
set -eu
STALLSCOPE_RESULTS=${STALLSCOPE_RESULTS:-stallscope-$SLURM_JOB_ID}
export STALLSCOPE_RESULTS
mkdir -p "$STALLSCOPE_RESULTS"

# A node that fails is missing in the matrix and ends the job with an error; the others continue.
failed=0
# shellcheck disable=SC2016 # each node puts in its own name
srun --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=0 sh -c '
  exec stallscope check --hostname "$SLURMD_NODENAME" \
    --save "$STALLSCOPE_RESULTS/check-$SLURMD_NODENAME.json.gz" ${STALLSCOPE_CHECK_OPTIONS:-} >/dev/null' || failed=$?

stallscope merge "$STALLSCOPE_RESULTS"/check-*.json.gz \
  --save "$STALLSCOPE_RESULTS/fleet.json.gz" --html "$STALLSCOPE_RESULTS/fleet.html"
exit "$failed"
