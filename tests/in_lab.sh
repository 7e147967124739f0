#!/bin/sh
# SPDX-License-Identifier: MIT
#
# usage: in_lab.sh UROCE ARGUMENTS...
#
# uroce lab ARGUMENTS, or the reason why there can be no hosts here, by which a test is skipped.
uroce=$1
shift
reason=$("$uroce" lab 1 -- true 2>&1) || { echo "skipped: $reason"; exit 77; }
exec "$uroce" lab "$@"
