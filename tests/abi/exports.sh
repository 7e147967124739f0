#!/bin/sh
# SPDX-License-Identifier: MIT
#
# usage: exports.sh LIBRARY LIST
#
# Compares what LIBRARY exports with LIST, the distribution's nodes and names. A name in several nodes has its default
# version in the newest and hidden ones in the others. ibv_register_driver has but a hidden one. Two names that
# rdma-core 56 (Debian 13) added to libibverbs' private node are exported besides, and what our librdmacm.so.1 asks of it, in a node
# of its own.

set -u
library=$1
list=$2
name=$(basename "$list" .exports)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# NAME VERSION, hidden versions in parentheses, as objdump writes them
awk '
	{
		node = $1
		sub(/.*global: /, "")
		sub(/(local: \*; )?}.*/, "")
		count = split($0, names, /; */)
		for (i = 1; i <= count; i++)
			if (names[i] != "") {
				nodes[names[i]] = nodes[names[i]] " " node
			}
	}
	END {
		for (name in nodes) {
			count = split(nodes[name], versions, " ")
			for (i = 1; i <= count; i++)
				if (i < count || name == "ibv_register_driver")
					print name, "(" versions[i] ")"
				else
					print name, versions[i]
		}
		if ("ibv_open_device" in nodes) {
			print "ibv_cmd_create_cq_ex2 IBVERBS_PRIVATE_34"
			print "ibv_wr_opcode_str IBVERBS_PRIVATE_34"
			count = split("accept bind close_channel connect create_id destroy_id disconnect get_event init_qp_attr " \
				      "join leave listen migrate_id notify open_channel query reject resolve_addr " \
				      "resolve_route set_context set_option", names, " ")
			for (i = 1; i <= count; i++)
				print "cm_" names[i], "UROCE_PRIVATE"
		}
	}
' "$list" | sort > "$work/expected"

objdump -T "$library" | awk '$0 !~ /\*UND\*/ && $0 !~ /\*ABS\*/ && /IBVERBS_|RDMACM_|UROCE_/ { print $NF, $(NF - 1) }' |
	sort > "$work/exported"

if [ ! -s "$work/exported" ]; then
	echo "$library exports nothing"
	exit 1
fi
if ! objdump -p "$library" | grep -q "SONAME *$name\.so\.1\$"; then
	echo "$library is not named $name.so.1"
	exit 1
fi
# < is missing, > should not be there
diff "$work/expected" "$work/exported" && echo "$(wc -l < "$work/exported") exports"
