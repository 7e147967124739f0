# SPDX-License-Identifier: MIT
#
# The two commands of a stranger are `make demo` and `make check`: both first install what is missing, and build.
# `make` and `make install` only build. CMake does the work.

BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

all: configure
	cmake --build $(BUILD) -j$(JOBS)

configure:
	cmake -S . -B $(BUILD) $(CMAKE_FLAGS)

install: all
	DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

demo:
	@scripts/need build run
	@echo "== build"
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) -j$(JOBS) --target ibverbs rdmacm uroce
	@echo "== demo"
	@scripts/demo $(BUILD)

check: check-build
	@echo "== tests"
	@scripts/check $(BUILD)

# Each promise of docs/strictness.md with what became of its tests.
check-strict: check-build
	@scripts/check-strict $(BUILD)

# What takes more memory or time than a check should.
check-long: check-build
	@echo "== long tests"
	@scripts/check $(BUILD) -C long -L long

# The distribution's programs in all places, timings, families and MTUs.
check-programs: check-build
	@scripts/check $(BUILD) -C programs -L 'clients|rdmacm|rsocket|wire'

# Random rounds of death and standstill: half an hour.
check-faults-long: check-build
	@scripts/check $(BUILD) -C long -L long -R '^faults\.'

# Links that lose, reorder, duplicate and corrupt, all at once, for an hour.
check-wire-long: check-build
	@scripts/check $(BUILD) -C hour -L hour

# 64 processes on each of two hosts that start, leave, are stopped and killed, for a minute.
check-crowd: check-build
	@scripts/check $(BUILD) -C crowd -L crowd

# Everything, built with sanitizers into a directory of its own. What one of them cannot do is left out where that test is
# defined, with the reason.
check-asan: SANITIZE = address,undefined
check-tsan: SANITIZE = thread
check-asan check-tsan:
	@scripts/need build run check
	@$(MAKE) --no-print-directory all BUILD=$(BUILD)-$@ CMAKE_FLAGS=-DUROCE_SANITIZE=$(SANITIZE)
	@scripts/check $(BUILD)-$@

# Each fuzzer for ten minutes, with clang, libFuzzer and two sanitizers.
check-fuzz:
	@scripts/need build fuzz
	@$(MAKE) --no-print-directory configure BUILD=$(BUILD)-$@ \
		CMAKE_FLAGS="-DCMAKE_C_COMPILER=clang -DUROCE_SANITIZE=address,undefined,fuzzer-no-link"
	@cmake --build $(BUILD)-$@ -j$(JOBS) --target fuzzers
	@scripts/check $(BUILD)-$@ -L fuzz

# The page of uroce trace in a headless browser; `make check` runs these too where there is one.
check-page:
	@scripts/need build page
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) --target trace_page
	@scripts/check $(BUILD) -L page

# Against soft-RoCE of Linux, in a virtual machine made of Debian's packages.
check-interop:
	@scripts/need build run check interop
	@$(MAKE) --no-print-directory all
	@scripts/check $(BUILD) -C interop -L interop

# The unit tests of a cross build for 64-bit ARM, under qemu-user.
check-arm64:
	@scripts/need build arm64
	@JOBS=$(JOBS) scripts/check-arm64 $(BUILD)/arm64

check-build:
	@scripts/need build run check
	@echo "== build"
	@$(MAKE) --no-print-directory all

bench: MEASURE = run
bench-net: MEASURE = net
bench-trace: MEASURE = trace
bench-connections: MEASURE = connections
bench bench-net bench-trace bench-connections:
	@scripts/need build run bench
	@echo "== build"
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) -j$(JOBS) --target ibverbs rdmacm uroce
	@echo "== benchmark"
	@bench/$(MEASURE) $(BENCH_FLAGS) $(BUILD)

clean:
	rm -rf $(BUILD)

.PHONY: all configure install demo check check-strict check-long check-programs check-faults-long check-wire-long check-crowd check-arm64 check-asan check-tsan check-fuzz check-interop check-page check-build clean bench bench-net bench-trace bench-connections
