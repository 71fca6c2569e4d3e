#!/bin/sh
# Installed by root as /usr/local/sbin/warpwatch-clock: fixes the GPU's clock while a job runs.
# The clock is the one that root wrote into /etc/warpwatch/clock-mhz; without that file it only
# resets. Nothing is taken from the job but the word `lock` or `reset`. For NVIDIA alone: on a machine
# without nvidia-smi it says so and the job goes on. /etc/warpwatch/gpus names the GPUs that it may
# touch, where others of the machine are somebody else's.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
clock_file=/etc/warpwatch/clock-mhz
gpus_file=/etc/warpwatch/gpus

case "${1:-}" in
lock | reset) ;;
*)
	echo "usage: warpwatch-clock lock|reset" >&2
	exit 2
	;;
esac

if ! command -v nvidia-smi >/dev/null; then
	echo "warpwatch-clock: no nvidia-smi here, clocks are left alone" >&2
	exit 0
fi

if [ -r "${gpus_file}" ]; then
	gpus="$(cat "${gpus_file}")"
	case "${gpus}" in
	'' | -* | *[!A-Za-z0-9,-]*)
		echo "${gpus_file}: expected UUIDs of GPUs with commas between, got '${gpus}'" >&2
		exit 2
		;;
	esac
	set -- "$1" "--id=${gpus}"
fi
word="$1"
shift

# Always first: a job that was killed may have left a lock.
nvidia-smi "$@" --reset-gpu-clocks >/dev/null

if [ "${word}" = "lock" ] && [ -r "${clock_file}" ]; then
	clock="$(cat "${clock_file}")"
	case "${clock}" in
	'' | *[!0-9]*)
		echo "${clock_file}: expected a clock in MHz, got '${clock}'" >&2
		exit 2
		;;
	esac
	nvidia-smi "$@" --lock-gpu-clocks="${clock},${clock}" >/dev/null
fi
