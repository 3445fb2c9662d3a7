#!/bin/sh
# Runs the compiled C examples, which lie in the directory $1. With RUNNER, such as "qemu-aarch64-static -L DIR", each
# worker is started by it, since a program cannot start itself under an emulator.
set -e
if [ -z "$RUNNER" ]; then
  for workers in 1 3; do
    "$1/aggregate" "$workers"
  done
  "$1/aggregate" 3 sockets
  exit
fi
for workers in 1 3; do
  pids=
  for rank in $(seq 0 $((workers - 1))); do
    RANK=$rank WORLD_SIZE=$workers MASTER_ADDR=127.0.0.1 MASTER_PORT=${PORT:-29417} SAR_TRANSPORT=tcp $RUNNER "$1/aggregate" &
    pids="$pids $!"
  done
  for pid in $pids; do wait "$pid"; done
  echo "$workers worker(s): ok"
done
