#!/bin/sh
# Trains with two workers of the program $1, which is for another processor: RUNNER starts each, such as
# "qemu-aarch64-static -L DIR". This processor's own program makes the partitions.
set -e
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
env -u GOARCH -u CC go run ./examples/go -epochs 1 -parts "$parts" >/dev/null
for model in gcn gat; do
  pids=
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=${PORT:-29418} SAR_TRANSPORT=tcp \
      $RUNNER "$1" -model $model -epochs 30 -parts "$parts" &
    pids="$pids $!"
  done
  for pid in $pids; do wait "$pid"; done
  echo "$model: trained with 2 workers"
done
