#!/bin/sh
# asv knows its machine by a file in HOME, which is empty at every start: write it from the
# machine's key. The other fields stay empty, so that all runners which share a key agree.
set -eu
if [ -n "${WARPWATCH_MACHINE:-}" ] && [ ! -e "${HOME}/.asv-machine.json" ]; then
	printf '{"%s": {"machine": "%s", "arch": "", "cpu": "", "num_cpu": "", "os": "", "ram": ""}, "version": 1}\n' \
		"${WARPWATCH_MACHINE}" "${WARPWATCH_MACHINE}" >"${HOME}/.asv-machine.json"
fi
exec "$@"
