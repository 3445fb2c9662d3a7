#!/bin/sh
# Runs the compiled C examples, which lie in the directory $1.
set -e
for workers in 1 3; do
  "$1/aggregate" "$workers"
done
