#!/bin/sh
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/common.sh"
here=$(realpath "$(dirname "$0")")
unset UROCE_TRACE UROCE_WITNESS UROCE_TRANSPORT LC_ALL LANGUAGE

# json FILE EXPRESSION...: each is true of the file, j; of a page's model too.
json() {
	file=$1
	shift
	/usr/bin/python3 - "$file" "$@" <<-'END'
		import json, sys
		text = open(sys.argv[1]).read()
		if sys.argv[1].endswith('.html'):
		    text = text[text.index('{"format":"uroce-trace"'):]
		j, end = json.JSONDecoder().raw_decode(text)
		def rows(table):
		    return [dict(zip(j[table]['columns'], row)) for row in j[table]['rows']]
		def sends(opcode):
		    return [s for s in rows('sends') if s['opcode'] == opcode]
		for expression in sys.argv[2:]:
		    if not eval(expression):
		        sys.exit(f'not so: {expression}')
	END
}

# dissected FILE: tshark finds no fault in it, all of it is RoCEv2, and the ICRC is right. What it sees is in seen.
dissected() {
	command -v tshark >/dev/null || skip "tshark is not installed"
	/usr/bin/python3 "$here/capture_icrc.py" "$1" >icrc || fail "$(cat icrc)"
	tshark -n --disable-protocol rpcordma -o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -r "$1" -Y \
		'!infiniband || _ws.malformed || ip.checksum.status == "Bad" || udp.checksum.status == "Bad"' >faults 2>err || fail "$(cat err)"
	[ ! -s faults ] || fail "$(head -5 faults)"
	tshark -n -r "$1" -T fields -e infiniband.bth.opcode -e frame.interface_name -e infiniband.bth.psn >seen 2>err
	[ -s seen ] || fail "no packets"
}

# seen OPCODE: how many packets of this BTH opcode there are.
seen() {
	awk -v opcode="$1" '$1 == opcode { n++ } END { print n + 0 }' seen
}

# A server and a client of ibv_rc_pingpong, two processes of one command: 20 messages each way, of 3000 bytes. They go on when
# there is something to do, not spinning.
pair='
	port=$1
	ibv_rc_pingpong -e -g 0 -n 20 -s 3000 -r 10 -p $port >server 2>&1 &
	until grep -q "$(printf ":%04X" $port) .* 0A " /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done
	ibv_rc_pingpong -e -g 0 -n 20 -s 3000 -r 10 -p $port 127.0.0.1 || exit
	wait $!'

exit_status_is_the_programs() {
	status 7 "$uroce" trace -- sh -c 'exit 7'
	status 127 "$uroce" trace -- no-such-program
	found=0
	"$uroce" trace -- sh -c 'kill -TERM $$' 2>err || found=$?
	same "status after SIGTERM" 143 $found
}

output_is_the_programs() {
	status 0 "$uroce" trace -o x.json -- "$HERE/counted"
	mv out traced
	status 0 "$uroce" run -- "$HERE/counted"
	same "lines of output" "$(sed 's/0x.*//' out)" "$(sed 's/0x.*//' traced)"
	status 0 "$uroce" trace -- "$HERE/counted"
	same "lines of output with a drawing" "$(sed 's/0x.*//' traced)" "$(sed 's/0x.*//' out)"
}

program_that_opens_no_device_is_said() {
	status 0 "$uroce" trace -- true
	grep -q 'no device of uroce was opened' err || fail "$(cat err)"
}

wrong_options_are_refused() {
	status 125 "$uroce" trace
	status 125 "$uroce" trace --pid 1 -- true
	status 125 "$uroce" trace --pid 0
	status 125 "$uroce" trace --seconds 1 -- true
	status 125 "$uroce" trace -o x.pcap -- true
	[ ! -e x.pcap ] || fail "x.pcap was made"
}

file_that_cannot_be_made_is_said() {
	refused 125 'no/such/directory/x.json: No such file' "$uroce" trace -o no/such/directory/x.json -- touch ran
	[ ! -e ran ] || fail "the program ran"
}

full_disk_is_said() {
	[ -c /dev/full ] || skip "no /dev/full here"
	ln -s /dev/full full.json
	status 125 "$uroce" trace -o full.json -- "$HERE/counted"
	grep -q 'the trace is not complete: full.json: No space left on device' err || fail "$(cat err)"
	# What it says itself is said first.
	status 3 "$uroce" trace -o full.json -- sh -c "'$HERE/counted'; exit 3"
}

messages_are_drawn() {
	status 0 env LC_ALL=C.UTF-8 "$uroce" trace -- "$HERE/counted"
	grep -q '│─*─ SEND wr_id 0 100 B ─*▶│ [0-9.]* [num]*s' err || fail "no arrow: $(cat err)"
	grep -q 'RKEY_BOUNDS.*ends 1 byte after the end of the region' err || fail "no cause: $(cat err)"
	grep -q '^RDMA_READ *posted to polled: 3 times' err || fail "no latency: $(cat err)"
	grep -q '^ *SQ 0x.*at most 17 of 32' err || fail "no queue: $(cat err)"
	! grep -q "$(printf '\033')" err || fail "colours"
	grep -q '^uroce trace: [0-9]* events of 1 process, 0 dropped$' err || fail "$(tail -1 err)"
}

ascii_where_the_locale_has_no_more() {
	status 0 env LC_ALL=C "$uroce" trace -- "$HERE/counted"
	grep -q '|-*- SEND wr_id 0 100 B -*>|' err || fail "no arrow: $(cat err)"
	! grep -q "$(printf '[\200-\377]')" err || fail "bytes beyond ASCII"
}

# Of all 20 messages to and fro both ends are known, with all times in their order.
joined() {
	json x.html "len(j['processes']) == 2" "j['dropped'] == 0" "len(sends('SEND')) == 40" \
		"all(s['status'] == 'SUCCESS' and s['length'] == 3000 for s in sends('SEND'))" \
		"all(s['receive'] is not None and rows('receives')[s['receive']]['send'] == i for i, s in enumerate(rows('sends')))" \
		"all(j['qps'][s['qp']]['peer'] == s['dest'] and j['qps'][s['qp']]['process'] != j['qps'][s['dest']]['process'] for s in rows('sends'))" \
		"all(s['posted'] <= s['rung'] and s['posted'] <= s['seen'] and s['seen'] <= s['gathered'] and s['seen'] <= s['cqe'] <= s['polled'] for s in rows('sends'))" \
		"all(s['taken'] <= s['placed'] <= s['remote_cqe'] and s['remote_polled'] is not None for s in rows('sends'))" \
		"[s['index'] for s in rows('sends') if s['qp'] == rows('sends')[0]['qp']] == list(range(20))" \
		"max(f['max'] for f in j['fills'] if f['queue'] == 'rq') == 10"
}

both_ends_are_joined() {
	status 0 "$uroce" trace -o x.html -- sh -c "$pair" sh $((20000 + $$ % 10000))
	joined
	json x.html "not j['packets']['rows']" "all(s['sent'] is not None and s['acked'] is None for s in rows('sends'))"
}

joined_over_the_wire_too() {
	status 0 "$uroce" trace --transport=roce --port=$((30000 + $$ % 1000)) -o x.html -- sh -c "$pair" sh $((20000 + $$ % 10000))
	joined
	json x.html "all(q['wire'] for q in j['qps'])" "all(s['acked'] is not None and s['sent'] <= s['taken'] and s['packets'] == 3 for s in rows('sends'))" \
		"all(p['send'] is not None for p in rows('packets'))"
}

joined_in_a_lab_too() {
	"$uroce" lab 1 -- true 2>err || skip "$(cat err)"
	status 0 "$uroce" trace -o x.html -- "$uroce" lab 2 -- ibv_rc_pingpong -e -g 0 -n 20 -s 3000 -r 10 :: \
		ibv_rc_pingpong -e -g 0 -n 20 -s 3000 -r 10 host1
	joined
	json x.html "{p['host'] for p in j['processes']} == {0, 1}" "all(q['wire'] for q in j['qps'])"
}

capture_of_shared_memory_is_roce() {
	status 0 "$uroce" trace -o x.pcapng -- sh -c "$pair" sh $((20000 + $$ % 10000))
	dissected x.pcapng
	# First, Middle, Last, Acknowledge: by both
	for opcode in 0 1 2 17; do
		same "packets with opcode $opcode" 40 "$(seen $opcode)"
	done
	same interfaces 2 "$(cut -f2 seen | sort -u | wc -l)"
}

capture_of_the_wire_is_roce() {
	status 0 "$uroce" trace --transport=roce --port=4791 -o x.pcapng -- sh -c "$pair" sh $((20000 + $$ % 10000))
	dissected x.pcapng
	for opcode in 0 1 2; do
		[ "$(seen $opcode)" -ge 40 ] || fail "only $(seen $opcode) packets with opcode $opcode"
	done
	[ "$(seen 17)" -ge 2 ] || fail "no acknowledgements"
}

# A WRITE beyond its region: the packet that asks for it, and a NAK that says why.
refused_request_has_its_cause() {
	status 0 "$uroce" trace -o x.pcapng -- "$HERE/counted"
	dissected x.pcapng
	tshark -n -r x.pcapng -Y 'infiniband.aeth.syndrome.opcode == 3' -T fields -e frame.comment >naks 2>err
	grep -q '^NAK of RDMA_WRITE, wr_id 0x0.*cause 23, RKEY_BOUNDS: .* ends 1 byte after the end of the region' naks || fail "$(cat naks)"
	# The same by real packets: the cause is that of the end that sent the NAK.
	status 0 "$uroce" trace --transport=roce -o y.pcapng -- "$HERE/counted"
	dissected y.pcapng
	tshark -n -r y.pcapng -Y 'infiniband.aeth.syndrome.opcode == 3' -T fields -e frame.comment >naks 2>err
	grep -q '^NAK of RDMA_WRITE, .*cause 23, RKEY_BOUNDS: .* ends 1 byte after the end of the region' naks || fail "$(cat naks)"
}

timeline_is_json() {
	status 0 "$uroce" trace -o x.json -- "$HERE/counted"
	json x.json "all(e['ph'] in 'MXsfCi' and 'pid' in e and 'name' in e for e in j['traceEvents'])" \
		"sum(e['ph'] == 'X' and e['name'] == 'RDMA_READ' for e in j['traceEvents']) == 3" \
		"sum(e['ph'] == 's' for e in j['traceEvents']) == sum(e['ph'] == 'f' for e in j['traceEvents']) == 11"
}

page_has_the_model() {
	status 0 "$uroce" trace -o x.html -- "$HERE/counted"
	json x.html "len(sends('SEND')) == 12" "len(sends('RDMA_WRITE')) == 10" "len(sends('RDMA_READ')) == 3" "len(sends('ATOMIC_FETCH_AND_ADD')) == 2" \
		"j['causes'][0]['name'] == 'RKEY_BOUNDS' and 'PEER_REPORTED' not in [c['name'] for c in j['causes']]" "rows('sends')[j['causes'][0]['send']]['status'] == 'REM_ACCESS_ERR'" \
		"'1 byte after the end' in j['causes'][0]['what']['en'] and '字节' in j['causes'][0]['what']['zh']" \
		"sum(r['srq'] is not None for r in rows('receives')) == 6" "any(e['kind'] == 'armed solicited' for e in rows('cq_events'))"
	! grep -q UROCE_TRACE_MODEL x.html || fail "the place of the model is still there"
}

# Two processes that have each recorded it, through shared memory and by packets: one cause, at the request that failed.
one_failure_has_one_cause() {
	mistakes=$BUILD/tests/explain/mistakes
	[ -x "$mistakes" ] || skip "tests/explain is not built"
	for option in --explain=off --transport=roce; do
		status 0 "$uroce" trace $option -o x.html -- "$mistakes" rkey_deregistered_by_peer
		json x.html "len(j['processes']) == 2" "[c['name'] for c in j['causes']] == ['RKEY_DEREGISTERED']" \
			"rows('sends')[j['causes'][0]['send']]['status'] == 'REM_ACCESS_ERR'" "'the other end has deregistered' in j['causes'][0]['what']['en']"
	done
}

# What is advised to each program, in both languages, is in the page; nothing to who does well.
page_has_the_advice() {
	mistakes=$BUILD/tests/explain/mistakes
	[ -x "$mistakes" ] || skip "tests/explain is not built"
	status 0 "$uroce" trace -o x.html -- "$mistakes" cq_much_too_deep
	json x.html "len(j['advice']) == 2 and all(a['process'] == 0 for a in j['advice'])" \
		"'created for 100000 completions' in j['advice'][0]['what']['en'] and '按 100000 个完成创建' in j['advice'][0]['what']['zh']" \
		"'cqe 100000 > 32767' in j['advice'][1]['what']['en'] and '在 rxe 这样的网卡上会失败' in j['advice'][1]['what']['zh']"
	# With the numbers of the other end's receives.
	status 0 "$uroce" trace -o x.html -- "$mistakes" receives_ran_out
	json x.html "any('made for 16 receives and had 2 at most' in a['what']['en'] for a in j['advice'])"
	status 0 "$uroce" trace -o x.html -- "$mistakes" none
	json x.html "j['advice'] == [] and j['causes'] == []"
}

# picture FILE EXPRESSION...: each is true of it, an element tree; messages are its messages.
picture() {
	file=$1
	shift
	/usr/bin/python3 - "$file" "$@" <<-'END'
		import sys, xml.etree.ElementTree as tree
		svg = tree.parse(sys.argv[1]).getroot()
		SVG = '{http://www.w3.org/2000/svg}'
		messages = [g for g in svg.iter(SVG + 'g') if g.get('class').startswith('message')]
		def count(element, tag, kind):
		    return sum(kind in (e.get('class') or '').split() for e in element.iter(SVG + tag))
		text = '\n'.join(''.join(e.itertext()) for e in svg.iter(SVG + 'text'))
		for expression in sys.argv[2:]:
		    if not eval(expression):
		        sys.exit(f'not so: {expression}')
	END
}

picture_has_an_arrow_per_message() {
	status 0 env LC_ALL=C.UTF-8 LANGUAGE=en "$uroce" trace -o x.svg -- "$HERE/counted"
	picture x.svg "svg.get('width') == '900'" "len(messages) == 12" "all(count(m, 'path', 'arrow') for m in messages)" \
		"all(count(m, 'path', 'head') or 'bad' in m.get('class') and count(m, 'path', 'cross') for m in messages)" \
		"'SEND wr_id 0, 100 B' in text" "'and ' in text and ' more requests' in text" "'at most 17 of 32' in text" \
		"any(count(svg, 'path', 'k%d' % kind) for kind in range(4))" "'prefers-color-scheme:dark' in svg.find(SVG + 'style').text"
	# What failed has its status and its cause.
	status 0 env LC_ALL=C.UTF-8 LANGUAGE=en "$uroce" trace -o y.svg -- "$BUILD/examples/send_recv"
	picture y.svg "[m.get('class') for m in messages] == ['message'] * 3 + ['message bad']" "count(messages[3], 'path', 'cross') == 1" \
		"'REM_INV_REQ_ERR' in text and 'RECEIVE_TOO_SHORT (29)' in text" "'takes the receive with wr_id 3' in text" \
		"'at most 4 of 4' in text"
	# A CQ never holds more than it has room for.
	status 0 env LC_ALL=C.UTF-8 LANGUAGE=en "$uroce" trace -o z.svg -- "$BUILD/examples/cq_overflow"
	picture z.svg "'at most 7 of 7' in text" "'CQ_OVERFLOW (61)' in text"
	status 0 "$uroce" trace -o none.svg -- true
	picture none.svg "not messages" "'No request was posted' in text"
}

picture_bears_any_name() {
	name=$(printf '<b>&"\001\377\357\277\277\047x')
	cp "$HERE/counted" "$name"
	status 0 env LC_ALL=C.UTF-8 LANGUAGE=en "$uroce" trace -o x.svg -- sh -c 'exec "$0"' "./$name" '</title></svg><script>1</script>'
	picture x.svg "len(messages) == 12" "'<b>&\"' in text" "not list(svg.iter(SVG + 'script'))" \
		"{e.tag[len(SVG):] for e in svg.iter()} <= set('svg title style rect text tspan path circle g'.split())"
	! grep -q '<script' x.svg || fail "a script"
}

picture_is_in_the_language_of_the_environment() {
	status 0 env LC_ALL=C.UTF-8 LANGUAGE=zh_CN "$uroce" trace -o x.svg -- "$BUILD/examples/send_recv"
	picture x.svg "'取走 wr_id 为 0 的接收请求' in text" "'最多 4，共 4' in text" "'at most' not in text"
	grep -q '已写入 x.svg' err || fail "$(cat err)"
}

process_that_runs_is_traced_and_goes_on() {
	"$uroce" run -- "$HERE/counted" --pace 1000 >words &
	counted=$!
	trap 'kill -KILL $counted 2>/dev/null || :; rm -rf "$work"' EXIT
	until grep -q ready words; do sleep 0.05; done
	for round in 1 2; do
		until "$uroce" trace -o x.html --pid $counted --seconds 1 2>err; do
			grep -q 'it does not answer' err || fail "round $round: $(cat err)"
		done
		json x.html "len(sends('RDMA_WRITE')) > 20" "all(s['length'] == 200 and s['status'] in ('SUCCESS', None) for s in sends('RDMA_WRITE'))" \
			"j['qps'][rows('sends')[0]['qp']]['type'] == 'RC'" "len(j['cqs']) >= 2" "j['processes'][0]['pid'] == $counted"
	done
	"$uroce" trace --pid $counted >out 2>err &
	tracer=$!
	sleep 1
	kill -INT $tracer
	wait $tracer || fail "after SIGINT: $(cat err)"
	grep -q 'RDMA_WRITE wr_id 0 200 B' out || fail "$(cat out)"
	kill -0 $counted || fail "the process has ended"
	# Its end is the trace's.
	"$uroce" trace -o x.json --pid $counted 2>err &
	tracer=$!
	sleep 1
	kill -KILL $counted
	wait $tracer || fail "after the process's end: $(cat err)"
}

other_processes_cannot_be_traced() {
	refused 1 'process 1 does not use uroce' "$uroce" trace --pid 1
}

run_case "$@"
