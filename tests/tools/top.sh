#!/bin/sh
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/common.sh"

# as_wide N: no line of out is longer, and none has anything but text.
as_wide() {
	long=$(awk -v most="$1" 'length($0) > most' out)
	[ -z "$long" ] || fail "longer than $1: $long"
	! LC_ALL=C grep -q '[^ -~]' out || fail "not text: $(cat out)"
}

qpn_of() {
	awk -v name="$1" '$1 == name { print $2 }' said
}

once_prints_all_tables() {
	counted
	status 0 "$uroce" top --once --interval 0.2 --pid $counted --columns 80
	as_wide 80
	for table in processes QPs CQs SRQs; do
		grep -qx $table out || fail "no $table: $(cat out)"
	done
	requester=$(qpn_of requester)
	responder=$(qpn_of responder)
	grep -q "^ *$counted counted  *S  *10  *4  *1 " out || fail "$(cat out)"
	grep -q "^ *$counted ${requester#0x} RC  *RTS ${responder#0x}  *2/32  *0/16 " out || fail "$(cat out)"
	grep -q "^ *$counted ${responder#0x} RC  *RTS ${requester#0x}  *0/32  *3/16 " out || fail "$(cat out)"
	# CQ, fill, size, high
	grep -q "^ *$counted counted  *0  *2  *63  *24 " out || fail "$(cat out)"
	grep -q "^ *$counted counted  *0  *2  *16  *6  *0  *1  *0$" out || fail "$(cat out)"
	grep -q "^ *$counted counted .* sol " out || fail "$(cat out)"
	# The program cannot have been looking since.
	grep -q "^ *$counted counted .*  0 *>0\.[2-9]s  *0$" out || fail "$(cat out)"

	status 0 "$uroce" top --once --interval 0.2 --pid $counted --columns 200
	as_wide 200
	grep -q ' MTU TO$' out || fail "$(cat out)"
}

language_of_the_environment_is_spoken() {
	counted
	status 0 env LC_ALL=C.UTF-8 LANGUAGE=zh_CN "$uroce" top --once --interval 0.2 --pid $counted --columns 80
	grep -q "^uroce top [0-9:]*  进程 $counted，10 个 QP，4 个 CQ，" out || fail "$(cat out)"
	grep -qx 进程 out || fail "$(cat out)"
	status 0 env LC_ALL=C.UTF-8 LANGUAGE=zh_CN "$uroce" top --once --interval 0.2 --pid $counted --qp "$(qpn_of waiting)" --columns 80
	# What stands in columns stands there whatever the words are.
	grep -q '^SQ  *0 等待  *[0-9.]*s  *0xabcdef SEND  *128 S$' out || fail "$(cat out)"
	/usr/bin/python3 -c "
import unicodedata
for line in open('out'):
    assert sum(2 if unicodedata.east_asian_width(c) in 'WF' else 1 for c in line.rstrip('\n')) <= 80, line" || fail "$(cat out)"
	screen 80 24 env LC_ALL=C.UTF-8 LANGUAGE=zh_CN "$uroce" top --interval 0.2 --pid $counted
	shows 'q 退出.*? 帮助$'
	press '?'
	shows '按任意键返回。$'
	press x
	shows 'q 退出'
	ends_well
}

rates_are_those_of_what_is_done() {
	mkfifo words
	"$uroce" run -- "$HERE/counted" --pace 100 >words &
	counted=$!
	trap 'kill -KILL $counted 2>/dev/null || :; rm -rf "$work"' EXIT
	read -r word <words
	# At most 100 a second are posted, in bursts of ten; the machine may be busy.
	status 0 "$uroce" top --once --interval 1.5 --pid $counted --columns 80
	rate=$(awk '$2 == "counted" && NF >= 12 { print $7; exit }' out)
	[ "$rate" -gt 10 ] && [ "$rate" -lt 130 ] || fail "rate $rate: $(cat out)"
}

waiting_request_is_shown_with_its_memory() {
	counted
	status 0 "$uroce" top --once --interval 0.3 --pid $counted --qp "$(qpn_of waiting)" --columns 80
	as_wide 80
	grep -q '^SQ  *0 waits  *0\.[2-9]s  *0xabcdef SEND  *128 S$' out || fail "$(cat out)"
	address=$(qpn_of address)
	lkey=$(qpn_of lkey)
	grep -q "SGE 0: address $address, 100 bytes, lkey $lkey" out || fail "$(cat out)"
	grep -q "SGE 1: address 0x[0-9a-f]*, 28 bytes, lkey $lkey" out || fail "$(cat out)"

	status 0 "$uroce" top --once --interval 0.1 --qp "$(qpn_of responder)" --columns 80
	same "receives" "0x9e7 0x9e8 0x9e9" "$(awk '$1 == "RQ" { print $5 }' out | xargs)"
	status 0 "$uroce" top --once --interval 0.1 --qp "$(qpn_of requester)" --columns 80
	same "done and not polled" 2 "$(grep -c '^SQ  *[0-9]* done .* WRITE  *200 S$' out)"
}

stopped_process_is_shown() {
	counted
	kill -STOP $counted
	while ! grep -q '^[0-9]* (counted) T' "/proc/$counted/stat"; do :; done
	status 0 timeout 60 "$uroce" top --once --interval 0.1 --pid $counted --qp "$(qpn_of waiting)"
	grep -q '0xabcdef' out || fail "$(cat out)"
	status 0 timeout 60 "$uroce" top --once --interval 0.1 --pid $counted
	grep -q "^ *$counted counted  *T" out || fail "$(cat out)"
}

# screen COLUMNS LINES COMMAND...: starts it in a terminal of that size.
screen() {
	command -v tmux >/dev/null || skip "no tmux here"
	columns=$1
	lines=$2
	shift 2
	unset TMUX
	socket=$work/terminal
	trap 'tmux -S "$socket" kill-server 2>/dev/null || :; kill -KILL $counted 2>/dev/null || :; rm -rf "$work"' EXIT
	tmux -S "$socket" -f /dev/null new-session -d -x "$columns" -y "$lines" "$* 2>>$work/said_wrong; echo \$? >$work/status"
	tmux -S "$socket" set-option -g status off
	tmux -S "$socket" resize-window -x "$columns" -y "$lines"
}

press() {
	tmux -S "$socket" send-keys "$@"
}

# shows PATTERN: until the screen, left in out, does.
shows() {
	for _ in $(seq 200); do
		tmux -S "$socket" capture-pane -p >out 2>/dev/null || :
		grep -q "$1" out && return
		sleep 0.05
	done
	fail "no '$1' on the screen: $(cat out)"
}

ends_well() {
	press q
	for _ in $(seq 200); do
		[ -s status ] && break
		sleep 0.05
	done
	same "its status" 0 "$(cat status)"
	[ ! -s said_wrong ] || fail "$(cat said_wrong)"
}

# fits COLUMNS LINES
fits() {
	counted
	waiting=$(qpn_of waiting)
	absent=$(qpn_of absent)
	screen "$1" "$2" "$uroce" top --interval 0.2 --pid $counted
	shows "$counted counted"
	shows 'q quit'
	as_wide "$1"
	same "lines" "$2" "$(wc -l <out)"
	same "the last line" "q quit" "$(tail -n 1 out | cut -c 1-6)"
	sed -n 1p out | grep -q '^uroce top [0-9:]* ' || fail "$(cat out)"

	press 3
	shows '\[3 CQs\]'
	shows "$counted counted  *0  *2  *63  *24"
	press 4
	shows '\[4 SRQs\]'
	press 2
	shows "$counted ${waiting#0x} RC"
	# By number: the greatest is that of the one that never posts a receive, then comes the one that waits for it.
	press '<' '<' '<' '<' '<' '<'
	shows "$counted ${absent#0x} RC"
	press Home Down Enter
	shows '\[queues of a QP\]'
	shows '0xabcdef SEND  *128'
	shows "SGE 1: address 0x[0-9a-f]*, 28 bytes, lkey $(qpn_of lkey)"
	as_wide "$1"
	press Escape
	shows '\[2 QPs\]'
	press '?'
	shows 'Any key goes back[.]$'
	press x
	shows '\[2 QPs\]'
	ends_well
}

screen_of_80_by_24() {
	fits 80 24
}

screen_of_200_by_60() {
	fits 200 60
}

screen_follows_its_size() {
	counted
	screen 80 24 "$uroce" top --interval 0.2 --pid $counted
	shows 'q quit'
	press 2
	shows 'RETRY$'
	tmux -S "$socket" resize-window -x 200 -y 60
	shows ' FLUSH .* MTU TO'
	same "lines" 60 "$(wc -l <out)"
	tmux -S "$socket" resize-window -x 40 -y 10
	shows '^    PID    QPN TY STATE   PEER      SQ$'
	shows 'q quit'
	as_wide 40
	same "lines" 10 "$(wc -l <out)"
	tmux -S "$socket" resize-window -x 80 -y 24
	shows 'RETRY$'
	ends_well
}

process_that_comes_and_goes_is_followed() {
	counted
	screen 80 24 "$uroce" top --interval 0.1
	shows "$counted counted"
	kill -KILL $counted
	for _ in $(seq 200); do
		tmux -S "$socket" capture-pane -p >out
		grep -q "$counted counted" out || break
		sleep 0.05
	done
	! grep -q "$counted counted" out || fail "$(cat out)"
	ends_well
}

without_a_terminal_it_says_so() {
	refused 1 "no terminal here; --once" "$uroce" top
	counted
	refused 1 "no queue pair 0x123456" "$uroce" top --once --pid $counted --qp 0x123456
	exec 3>&-
	wait $counted || :
	refused 1 "does not use uroce" "$uroce" top --once --pid $counted
}

wrong_options_are_refused() {
	for option in --interval=0 --interval=x --interval=nan --pid=0 --pid=x --qp=x --qp=0x1000000 --columns=5 --columns=5000 12; do
		status 2 "$uroce" top "$option"
	done
}

run_case "$@"
