# Functions of scripts/rabbitmq that find a release in a Debian archive and unpack it.
# They use variables and functions of that script.
# shellcheck shell=bash

# instead prints the alternative for machines that cannot install or run a release.
instead() {
    echo "The tests can use another RabbitMQ $V (set REPRISE_TEST_RABBITMQ_${V/./}=amqp://user:password@host:5672/)"
}

# mirror prints the URL of the Debian archive in the machine's apt sources: the entry of
# the machine's release, without security and updates.
mirror() {
    local id code uri
    if [ -n "${RABBIT_MIRROR-}" ]; then
        echo "$RABBIT_MIRROR"
        return
    fi
    # shellcheck source=/dev/null
    read -r id code < <(. /etc/os-release 2>/dev/null && echo "${ID-} ${VERSION_CODENAME-}") || true
    [ "$id" = debian ] ||
        die "Debian mirror not found: system is '${id:-unknown}' (set RABBIT_MIRROR). $(instead)"
    # shellcheck disable=SC2016
    uri=$(apt-get indextargets --no-release-info --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' \
        'Created-By: Packages' 2>/dev/null |
        awk -v c="$code" '$2 == "main" && ($1 == c || $1 == "stable" || $1 == "testing" || $1 == "unstable" || $1 == "sid") && $3 !~ /security/ { print $3; exit }') || true
    if [ -z "$uri" ]; then # apt has no index yet, so read the files of its sources
        uri=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list /etc/apt/sources.list 2>/dev/null |
            awk -v c="$code" '
                /^#/ { next }
                tolower($1) == "uris:" { u = $2 }
                tolower($1) == "suites:" { for (i = 2; i <= NF; i++) if ($i == c && u !~ /security/) { print u; exit } }
                $1 == "deb" { i = 2; if ($i ~ /^\[/) { while ($i !~ /\]$/) i++; i++ }
                              if ($(i + 1) == c && $i !~ /security/) { print $i; exit } }') || true
    fi
    [ -n "$uri" ] || die "Debian mirror not found in the apt sources of this machine (set RABBIT_MIRROR)"
    echo "$uri"
}

# Dependencies of the packages that a broker under test does not use.
UNUSED='^(adduser|base-passwd|cron.*|debconf|init-system-helpers|libdb5.*|libdebconfclient0|libpam.*|libsemanage.*|libsepol.*|libsystemd-shared|libaudit.*|libmount1|libblkid1|libseccomp2|libapparmor1|libcryptsetup.*|libkmod2|libfdisk1|libdevmapper.*|dmsetup|login.*|logrotate|lsb-base|media-types|openssl|passwd|perl.*|procps|libproc2-0|libproc2-1|libncurses.*|libsqlite3-0|libreadline.*|readline-common|python3.*|libpython3.*|rabbitmqadmin-ng|socat|sysvinit-utils|systemd.*|tzdata|ucf|sensible-utils|libwrap0|libnsl2|libtirpc.*|libgssapi.*|libkrb5.*|libk5crypto3|libcom-err2|libkeyutils1|libexpat1|libffi8|libuuid1|netbase|libc-gconv-modules-extra|gcc-.*-base)$'

# need_machine fails if the machine cannot unpack and run releases.
need_machine() {
    local c
    [ "$(uname -s)" = Linux ] || die "operating system must be Linux: got $(uname -s). $(instead)"
    for c in apt-get apt-cache dpkg-deb; do
        command -v $c >/dev/null || die "$c not found; this script requires Debian. $(instead)"
    done
    for c in tar:tar flock:util-linux setsid:util-linux awk:mawk; do
        command -v "${c%:*}" >/dev/null || die "${c%:*} not found (apt-get install ${c#*:})"
    done
}

# apt COMMAND OPTIONS...: runs an apt command with sources, lists and an (empty) status in
# $WORK, and with the machine's settings of proxies and certificates. It accepts old indexes, such as a snapshot's, because
# they are signed, and the list of versions has the hash of the package.
apt() {
    local tool=$1
    shift
    "$tool" -qq \
        -o Dir::Etc::sourcelist="$WORK/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
        -o Dir::State="$WORK" -o Dir::State::lists="$WORK/lists" -o Dir::State::status="$WORK/status" \
        -o Dir::Cache="$WORK/cache" -o Dir::Cache::archives="$WORK/cache/archives" \
        -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false \
        -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 -o APT::Update::Error-Mode=any "$@"
}

# read_index URL SUITE: reads the index of a suite. It sets HAVE and HASH, or fails and notes the reason in SEEN.
read_index() {
    local keyring='' error
    [ -r /usr/share/keyrings/debian-archive-keyring.gpg ] &&
        keyring='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] '
    say "$V: reading the index of $2"
    rm -rf "$WORK/lists"
    mkdir -p "$WORK/lists/partial"
    echo "deb $keyring${1%/}/ $2 main" >"$WORK/sources.list"
    if ! error=$(apt apt-get update 2>&1); then
        SEEN+=("$2 at $1: $(grep -m 1 "^[EW]: Failed" <<<"$error" || tail -n 1 <<<"$error")")
        return 1
    fi
    HAVE=$(apt apt-cache policy rabbitmq-server | awk '$1 == "Candidate:" { print $2 }')
    HASH=$(apt apt-cache show "rabbitmq-server=$HAVE" 2>/dev/null | awk '$1 == "SHA256:" { print $2; exit }') || true
    case $HAVE in
    "$V".*) ;;
    *)
        SEEN+=("$2 at $1: it has ${HAVE:-none}")
        return 1
        ;;
    esac
}

# find_release looks for the tested package of $V in the packages of earlier installations and in all archives, and then for
# any release of $V. It sets HAVE and FROM.
find_release() {
    local own=RABBIT_SOURCE_${V//./_} places=() place other='' url
    place=$(echo "$ROOT/debs/$V"/rabbitmq-server_*.deb)
    if [ -f "$place" ] && [ "$(sha256sum <"$place")" = "$TESTED_HASH  -" ]; then
        HAVE=$TESTED FROM=$ROOT/debs
        return
    fi
    SEEN=()
    [ -z "${!own-}" ] || places+=("${!own}")
    url=$(mirror)
    for place in ${SUITES//,/ }; do places+=("$url $place"); done
    for place in "${places[@]}"; do
        [[ $place = *' '* ]] || die "$own must be 'URL SUITE': got '$place'"
        read_index "${place% *}" "${place##* }" || continue
        FROM=${place##* }
        [ "$HASH" != "$TESTED_HASH" ] || return 0
        SEEN+=("$FROM at ${place% *}: it has $HAVE")
        other=${other:-$place}
    done
    if [ -n "$other" ]; then
        read_index "${other% *}" "${other##* }" || die "$V: cannot read ${other##* } again"
        FROM=${other##* }
        say "$V: WARNING: the tests have not run with $HAVE, but with $TESTED, which no archive has"
        return
    fi
    say "rabbitmq-server $V (tested: $TESTED) not found:"
    for place in "${SEEN[@]}" "$ROOT/debs/$V: it has none"; do say "  $place"; done
    say "Use one of these:"
    say "  $own='URL SUITE': a Debian archive that has it, such as a dated snapshot"
    say "  copy $ROOT/debs/$V from a machine on which \`$SELF install $V\` succeeded"
    die "  $(instead)"
}

# download downloads rabbitmq-server and its dependencies from the archive that find_release has found.
download() {
    local names
    names=$(apt apt-get --print-uris -y install rabbitmq-server |
        awk -v skip="$UNUSED" '{ n = $2; sub(/_.*/, "", n); if (n !~ skip) print n }')
    grep -qx rabbitmq-server <<<"$names" || die "cannot install rabbitmq-server from $FROM"
    say "$V: rabbitmq-server $HAVE, $(wc -w <<<"$names") packages"
    # shellcheck disable=SC2086
    (cd "$WORK/deb" && apt apt-get download $names >&2)
}

install_one() {
    version "$1"
    if [ -f "$RFS/.installed" ]; then
        say "$V is already installed: $(cat "$RFS/.installed")"
        return
    fi
    need_machine
    mkdir -p "$ROOT"
    exec 8>"$ROOT/.lock-$V"
    flock 8
    if [ -f "$RFS/.installed" ]; then # another process installed it
        exec 8>&-
        return
    fi

    local t0=$SECONDS
    WORK=$ROOT/.work-$V
    rm -rf "$WORK"
    mkdir -p "$WORK"/{cache/archives/partial,deb}
    : >"$WORK/status"
    find_release
    if [ "$FROM" = "$ROOT/debs" ]; then
        cp "$ROOT/debs/$V"/*.deb "$WORK/deb/"
    else
        download
    fi

    unpack "$WORK/deb" "$WORK/new"
    local otp
    otp=$(in_release "$WORK/new" erl -noshell -eval 'io:put_chars(erlang:system_info(otp_release)), halt().') ||
        die "$V: cannot run the unpacked Erlang"
    echo "rabbitmq-server $HAVE, Erlang/OTP $otp, from $FROM" >"$WORK/new/.installed"
    rm -rf "$RFS"
    mv "$WORK/new" "$RFS"
    if [ "$FROM" != "$ROOT/debs" ]; then
        rm -rf "$ROOT/debs/$V"
        mkdir -p "$ROOT/debs"
        mv "$WORK/deb" "$ROOT/debs/$V"
    fi
    rm -rf "$WORK"
    exec 8>&-
    say "$V installed in $((SECONDS - t0)) s: $(cat "$RFS/.installed"), $(du -sm "$RFS" | cut -f1) MiB at $RFS"
}

# unpack DEBS ROOTFS: unpacks packages into a root directory.
unpack() {
    local new=$2 d
    for d in bin sbin lib lib64; do # merged /usr, which some packages do not use yet
        mkdir -p "$new/usr/$d"
        ln -s "usr/$d" "$new/$d"
    done
    # shellcheck disable=SC2016
    find "$1" -name '*.deb' -print0 | new=$new xargs -0 -P "$(nproc)" -n 1 sh -c '
        dpkg-deb --fsys-tarfile "$1" | tar -x -C "$new" --no-same-owner --keep-directory-symlink \
            --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale \
            --exclude=./usr/share/info --exclude=./usr/share/lintian --exclude=./usr/share/bash-completion \
            --exclude=./usr/share/zsh --exclude="./usr/lib/*/gconv" --exclude="./etc/systemd" \
            --exclude=./usr/lib/systemd --exclude=./lib/systemd' sh
    for d in "$new"/usr/lib/erlang/lib/*/priv/bin/*; do
        if [ "$(head -c 4 "$d" | tail -c 3)" = ELF ]; then
            mv "$d" "$d.elf"
            cp "$ERLANG/run" "$d"
        fi
    done
    mkdir -p "$new/var/lib/rabbitmq"
    # All nodes of a version share a cookie, so that they can form a cluster.
    tr -d '\n-' </proc/sys/kernel/random/uuid >"$new/var/lib/rabbitmq/.erlang.cookie"
    chmod 400 "$new/var/lib/rabbitmq/.erlang.cookie"
}
