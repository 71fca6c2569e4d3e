#!/usr/bin/env bash
# The steps of action.yml: `key` names the cache, `install` fills the environment, `lane` measures two
# commits and gives the verdict. Values come through the environment and are never part of a command.
set -euo pipefail
docker="$(cd "$(dirname "$0")" && pwd)"
environment="${WARPWATCH_ENVIRONMENT:-${RUNNER_TEMP:-/tmp}/warpwatch-environment}"
python="${environment}/bin/python"
lane="${RUNNER_TEMP:-/tmp}/warpwatch-lane"

case "${1:-}" in
key)
	# Everything that decides what is installed. The environment holds absolute paths: the folder
	# is part of it.
	sum="$({
		python3 --version
		uname -m
		echo "${environment}"
		cat "${docker}/constraints.txt" "${docker}"/locks/*.txt "${docker}/pip_arguments.py"
		find "${docker}/../warpwatch" -type f ! -name '*.pyc' | LC_ALL=C sort | xargs cat
		if [ -n "${REQUIREMENTS:-}" ]; then cat -- "${REQUIREMENTS}"; fi
	} | sha256sum | cut -c1-32)"
	printf 'key=warpwatch-%s\nfolder=%s\n' "${sum}" "${environment}" >>"${GITHUB_OUTPUT}"
	;;
install)
	python3 -m venv "${environment}"
	"${python}" "${docker}/pip_arguments.py" compile |
		xargs "${python}" -m pip install --quiet --disable-pip-version-check
	"${python}" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation "${docker}/.."
	if [ -n "${REQUIREMENTS:-}" ]; then
		"${python}" -m pip install --quiet --disable-pip-version-check --requirement "${REQUIREMENTS}"
	fi
	;;
lane)
	head="${HEAD:?a commit}"
	base="${BASE:-}"
	# The first push of a branch has nothing before it; what a forced push replaced may be gone.
	git rev-parse --quiet --verify --end-of-options "${base:-none}^{commit}" >/dev/null || base="${head}~1"
	rm -rf "${lane}"
	"${python}" -m warpwatch ci lane --lane cpu --machine compile-lane \
		"--base=${base}" "--head=${head}" --bench '^compiled\.' --out "${lane}"
	base="$(git merge-base --end-of-options "${base}" "${head}")"
	set -- --results "${lane}/results" "${base}" "${head}"
	code=0
	"${python}" -m warpwatch ci comment --as summary "$@" >>"${GITHUB_STEP_SUMMARY}" || code=$?
	case "${code}" in
	0) verdict=success ;;
	1) verdict=failure ;;
	3) verdict=action_required ;;
	*) exit "${code}" ;;
	esac
	echo "verdict=${verdict}" >>"${GITHUB_OUTPUT}"
	"${python}" -m warpwatch compare --recorded "$@" || true
	exit "${code}"
	;;
*)
	echo "usage: action.sh key|install|lane" >&2
	exit 2
	;;
esac
