#!/bin/sh
# The template "base", made in a box of the template "host" by root: what E2B's clients expect to find.
# host has the account user with sudo already.
#   base.sh need WORD...     prints "need PACKAGE" for each that WORDs ask for and that is missing
#   base.sh apply WORD...    does it; prints "warn TEXT" for what the host lacks, and "account root" where there
#                            can be no other
set -eu

case $1 in
need)
    exit 0
    ;;
apply) ;;
*)
    echo "base.sh: '$1' is neither need nor apply" >&2
    exit 2
    ;;
esac

for tool in bash python3 git curl sudo tput; do
    command -v "$tool" >/dev/null ||
        echo "warn there is no $tool; install it on this machine, or add --packages"
done
python=$(command -v python3) || python=''
if [ -n "$python" ]; then
    command -v python >/dev/null || ln -s "$python" /usr/local/bin/python
    # A box is its own environment: pip need not be kept from it. The directory is there so that a
    # Python which runs already sees what is installed.
    [ -e /etc/pip.conf ] || printf '[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\nroot-user-action = ignore\n' >/etc/pip.conf
    site=$("$python" -c 'import sys; print("lib/python%d.%d/site-packages" % sys.version_info[:2])')
    mkdir -p "/home/user/.local/bin" "/home/user/.local/$site"
fi
# A box of an ordinary user without subordinate ids has one id, and that is root's.
if ! chown -R user:user /home/user 2>/dev/null; then
    echo 'account root'
    echo 'warn boxes have one id here, so all runs as root in them; den doctor tells how to have more'
fi
