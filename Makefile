# SPDX-License-Identifier: MIT
#
# The two commands of a stranger are `make demo` and `make check`: both install what is missing first.
# `make` and `make install` only build; CMake does the work.

BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

all: configure
	cmake --build $(BUILD) -j$(JOBS)

configure:
	cmake -S . -B $(BUILD) $(CMAKE_FLAGS)

install: all
	DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD)

.PHONY: all configure install clean
