#!/bin/sh
# Installed by root as /usr/local/sbin/warpwatch-clock: fixes the GPU's clock while a job runs.
# The clock is the one that root wrote into /etc/warpwatch/clock-mhz; without that file it only
# resets. Nothing is taken from the job but the word `lock` or `reset`.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
clock_file=/etc/warpwatch/clock-mhz

case "${1:-}" in
lock | reset) ;;
*)
	echo "usage: warpwatch-clock lock|reset" >&2
	exit 2
	;;
esac

# Always first: a job that was killed may have left a lock.
nvidia-smi --reset-gpu-clocks >/dev/null

if [ "$1" = "lock" ] && [ -r "${clock_file}" ]; then
	clock="$(cat "${clock_file}")"
	case "${clock}" in
	'' | *[!0-9]*)
		echo "${clock_file}: expected a clock in MHz, got '${clock}'" >&2
		exit 2
		;;
	esac
	nvidia-smi --lock-gpu-clocks="${clock},${clock}" >/dev/null
fi
