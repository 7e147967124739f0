#!/bin/sh
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/common.sh"

# expects: what the program did, in the JSON of out. Numbers that grow with time are asked for by +.
expects() {
	/usr/bin/python3 - "$(said requester)" "$(said responder)" "$(said datagrams)" "$(said waiting)" "$(said absent)" "$counted" <<-'END'
		import json, sys
		requester, responder, datagrams, waiting, absent, pid = map(int, sys.argv[1:])
		processes = json.load(open('out'))['processes']
		assert len(processes) == 1, processes
		process = processes[0]
		def check(what, found, **expected):
		    for name, value in expected.items():
		        right = found[name] >= value if name in ('rnr_nak_retry_err', 'out_of_buffer') and value else found[name] == value
		        assert right, '%s: %s is %s, not %s' % (what, name, found[name], value)
		check('process', process, pid=pid, command='counted', device='uroce0', not_shown=None)
		check('device', process['counters'], rdma_sends=11, rdma_writes=9, rdma_reads=3, rdma_atomics=2, rdma_recvs=7,
		      rx_write_requests=9, rx_read_requests=3, rx_atomic_requests=2, req_cqe_error=1, req_cqe_flush_error=0,
		      req_remote_access_errors=1, cq_overflows=1, retry_exceeded_err=0, rnr_nak_retry_err=1, out_of_buffer=1)
		qps = {qp['qpn']: qp for qp in process['qps']}
		moved = 7 * 100 + 7 * 200 + 3 * 50 + 2 * 8
		check('requester', qps[requester], type='RC', state='RTS', peer_qpn=responder, rdma_sends=7, rdma_writes=7,
		      rdma_reads=3, rdma_atomics=2, req_bytes=moved, rdma_recvs=0, sq_size=32, sq_pending=0, sq_depth=2,
		      rnr_nak_retry_err=0, req_cqe_error=0, mtu=1024)
		assert 17 <= qps[requester]['sq_high_water'] <= 32
		check('responder', qps[responder], peer_qpn=requester, rdma_sends=0, rdma_recvs=7, rx_write_requests=7,
		      rx_read_requests=3, rx_atomic_requests=2, resp_bytes=moved, rq_size=16, rq_posted=3, rq_high_water=10)
		check('datagrams', qps[datagrams], type='UD', peer_qpn=None, rdma_sends=4, req_bytes=256)
		check('waiting', qps[waiting], state='RTS', sq_pending=1, sq_depth=1, rnr_nak_retry_err=1, rdma_sends=0)
		check('absent', qps[absent], out_of_buffer=1, rq_posted=0)
		cqs = {cq['cq']: cq for cq in process['cqs']}
		check('CQ', cqs[qps[requester]['send_cq']], completions=26, size=63, fill=2, overflows=0, in_error=False)
		assert 2 <= cqs[qps[requester]['send_cq']]['high_water'] <= 24
		lost = [cq for cq in process['cqs'] if cq['in_error']]
		assert len(lost) == 1
		check('CQ that overflowed', lost[0], size=1, fill=1, completions=1, overflows=1, high_water=1)
		assert [cq['armed'] for cq in process['cqs']].count(2) == 1, process['cqs']
		assert len(process['srqs']) == 1
		check('SRQ', process['srqs'][0], taken=4, datagram_bytes=256, size=16, posted=2, high_water=6, limit=1)
		assert len(process['mrs']) == 1
		check('MR', process['mrs'][0], length=8192, refused=1)
	END
}

counters_are_those_of_what_was_done() {
	counted
	status 0 "$uroce" stat --json --pid $counted
	expects || fail "$(cat out)"
	# Nobody polls, so that the most that waited is what was there.
	grep -q '"high_water": *24' out || fail "$(cat out)"
}

counters_are_the_same_over_the_wire() {
	UROCE_TRANSPORT=roce UROCE_PORT=24931
	export UROCE_TRANSPORT UROCE_PORT
	counted
	# Answers are under way yet.
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		status 0 "$uroce" stat --json --pid $counted
		expects 2>wrong && break
		sleep 0.5
	done
	expects || fail "$(cat out)"
	/usr/bin/python3 -c "
import json
counters = json.load(open('out'))['processes'][0]['counters']
# Nothing else has the port, and loopback loses nothing.
assert counters['port_xmit_packets'] == counters['port_rcv_packets'] > 25, counters
assert counters['port_xmit_data'] == counters['port_rcv_data'] > 2266 / 4, counters
" || fail "$(cat out)"
}

formats_say_the_same() {
	counted
	# The one that waits for a receiver counts on.
	kill -STOP $counted
	status 0 "$uroce" stat --prometheus --pid $counted
	mv out metrics
	status 0 "$uroce" stat --json --pid $counted
	/usr/bin/python3 - <<-'END' || fail "$(cat metrics)"
		import json, re
		process = json.load(open('out'))['processes'][0]
		helps, types, values = set(), {}, {}
		for line in open('metrics'):
		    head = re.fullmatch(r'# (HELP|TYPE) ([a-z_]+) (.+)\n', line)
		    if head:
		        kind, name, rest = head.groups()
		        if kind == 'HELP':
		            assert name not in helps, line
		            helps.add(name)
		        else:
		            assert name in helps and rest in ('counter', 'gauge'), line
		            assert (rest == 'counter') == name.endswith('_total'), line
		            types[name] = rest
		        continue
		    sample = re.fullmatch(r'([a-z_]+)\{([a-z]+="[^"]*"(?:,[a-z]+="[^"]*")*)\} (\d+)\n', line)
		    assert sample and sample.group(1) in types, line
		    labels = dict(re.findall(r'([a-z]+)="([^"]*)"', sample.group(2)))
		    assert labels['pid'] == str(process['pid']) and labels['command'] == 'counted' and labels['device'] == 'uroce0', line
		    key = (sample.group(1), labels.get('qpn') or labels.get('cq') or labels.get('srq') or labels.get('rkey'))
		    assert key not in values, line
		    values[key] = int(sample.group(3))
		def check(prefix, ident, found):
		    for name, value in found.items():
		        family = prefix + name
		        family = family if family in types else family + '_total'
		        assert values.pop((family, ident)) == value, (family, ident)
		check('uroce_device_', None, process['counters'])
		ids = ('qpn', 'type', 'state', 'peer_qpn', 'sgid', 'dgid', 'mtu', 'pd', 'send_cq', 'recv_cq', 'srq', 'cq', 'in_error',
		       'polls', 'lkey', 'rkey', 'access', 'addr', 'iova')
		for kind, ident in (('qp', lambda o: '0x%06x' % o['qpn']), ('cq', lambda o: str(o['cq'])),
		                    ('srq', lambda o: str(o['srq'])), ('mr', lambda o: '0x%08x' % o['rkey'])):
		    for entry in process[kind + 's']:
		        check('uroce_%s_' % kind, ident(entry), {k: v for k, v in entry.items() if k not in ids})
		assert list(values) == [('uroce_process_shown', None)], values
	END
	status 0 "$uroce" stat --pid $counted
	grep -q "^process $counted (counted), uroce0, stopped" out || fail "$(cat out)"
	grep -q 'rdma_sends 7, rdma_writes 7, rdma_reads 3, rdma_atomics 2' out || fail "$(cat out)"
	grep -q 'SRQ 0' out || fail "$(cat out)"
}

observed_process_goes_on() {
	counted
	for _ in 1 2 3 4 5; do
		"$uroce" stat >/dev/null
		"$uroce" stat --json >/dev/null
	done
	exec 3>&-
	wait $counted || fail "it ended with $?"
}

process_that_dies_is_no_error() {
	for i in 1 2 3 4 5 6; do
		rm -f stays words said
		counted
		"$uroce" stat >"out$i" 2>&1 &
		looker=$!
		# Somewhat later each time: while it looks, or before.
		sleep "0.00$i"
		kill -KILL $counted
		found=0
		wait $looker || found=$?
		same "status" 0 $found
		exec 3>&-
		wait $counted 2>/dev/null || :
	done
	refused 1 'does not use uroce' "$uroce" stat --pid $counted
}

# A process whose segment has another version, and its slot.
other_version() {
	mkfifo claimed
	/usr/bin/python3 -c "
import os, socket, struct, sys, time
fd = os.memfd_create('uroce')
os.truncate(fd, 1 << 20)
os.pwrite(fd, struct.pack('=QIIQ', 0x65636f7275, 4711, 1019, 1), 0)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind('\0uroce/1019')
s.listen(8)
print('claimed', flush=True)
time.sleep(60)" >claimed &
	other=$!
	trap 'kill -KILL $other 2>/dev/null || :; rm -rf "$work"' EXIT
	read -r line <claimed
}

other_version_is_said() {
	other_version
	status 0 "$uroce" stat
	grep -q "^process $other (python3).*: not shown: its uroce is of another version (layout 4711" out || fail "$(cat out)"
	status 0 "$uroce" stat --json
	grep -q '"not_shown": *"its uroce is of another version (layout 4711' out || fail "$(cat out)"
	status 0 "$uroce" stat --prometheus
	grep -q "^uroce_process_shown{pid=\"$other\",command=\"python3\(\.[0-9]*\)*\"} 0" out || fail "$(cat out)"
	status 1 "$uroce" stat --pid $other
	grep -q 'another version (layout 4711' err || fail "$(cat err)"
	status 0 "$uroce" top --once --interval 0.1
	grep -q "process $other .* is not shown: its uroce is of another version (layout 4711" out || fail "$(cat out)"
}

other_users_process_is_said() {
	[ "$(id -u)" = 0 ] || skip "only root can be two users"
	counted
	install_in "$work/for_all"
	cp -r "$BUILD/bin/uroce" for_all/bin/
	status 0 setpriv --reuid 65534 --clear-groups "$work/for_all/bin/uroce" stat
	grep -q "^process $counted (counted): not shown: it is of another user" out || fail "$(cat out)"
}

wrong_options_are_refused() {
	status 2 "$uroce" stat --json --prometheus
	for pid in 0 -1 x 1x ''; do
		status 2 "$uroce" stat --pid="$pid"
		grep -q "'$pid' is no process id" err || fail "$(cat err)"
	done
	status 2 "$uroce" stat 12
	# No process that uses uroce, but a process.
	refused 1 "does not use uroce" "$uroce" stat --pid 1
}

run_case "$@"
