#!/bin/sh
# Runs stallscope's check on every node of a Slurm job and merges the results:
#   sbatch --nodes=4 stallscope.sbatch
# Needs `stallscope` on the PATH of every node, and a submission folder that every node can access.
#   STALLSCOPE_RESULTS        folder for the results (default: stallscope-JOB)
#   STALLSCOPE_CHECK_OPTIONS  more options of the check, for example --quick
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

# A node that fails is missing in the merged check, and the job ends with an error; the other nodes continue.
failed=0
# shellcheck disable=SC2016 # expanded on each node
srun --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=0 sh -c '
  exec stallscope check --hostname "$SLURMD_NODENAME" \
    --save "$STALLSCOPE_RESULTS/check-$SLURMD_NODENAME.json.gz" ${STALLSCOPE_CHECK_OPTIONS:-} >/dev/null' || failed=$?

stallscope merge "$STALLSCOPE_RESULTS"/check-*.json.gz \
  --save "$STALLSCOPE_RESULTS/fleet.json.gz" --html "$STALLSCOPE_RESULTS/fleet.html"
exit "$failed"
