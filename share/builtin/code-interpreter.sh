#!/bin/sh
# The template "code-interpreter-v1", made in a box of the template "base" by root: a server that runs
# cells, on port 49999, and the Python that they run in.
#   code-interpreter.sh need WORD...     prints "need PACKAGE" for each that is missing
#   code-interpreter.sh apply WORD...    does it; prints "warn TEXT" for what is not there
# WORDs: full, r, javascript, typescript
set -eu
here=$(dirname "$0")
lib=/usr/local/lib/den/interpreter

# The Python that has what the kernel needs; Debian's, if none has.
python_find() {
    for p in $(command -v python3 || :) /usr/bin/python3; do
        if [ -x "$p" ] && "$p" -c 'import ipykernel, zmq' 2>/dev/null; then
            echo "$p"
            return
        fi
    done
    echo /usr/bin/python3
}

# need MODULE PACKAGE: unless the module can be imported
need() {
    "$python" -c "import $1" 2>/dev/null || echo "need $2"
}

python=$(python_find)
case $1 in
need)
    shift
    need ipykernel python3-ipykernel
    need zmq python3-zmq
    need numpy python3-numpy
    need pandas python3-pandas
    need matplotlib python3-matplotlib
    for word; do
        case $word in
        full)
            need scipy python3-scipy
            need sklearn python3-sklearn
            need seaborn python3-seaborn
            need sympy python3-sympy
            need PIL python3-pil
            need openpyxl python3-openpyxl
            need requests python3-requests
            need bs4 python3-bs4
            need lxml python3-lxml
            need statsmodels python3-statsmodels
            need pip python3-pip
            ;;
        r) [ -e /usr/share/jupyter/kernels/ir/kernel.json ] || echo 'need r-cran-irkernel' ;;
        javascript) command -v node >/dev/null || echo 'need nodejs' ;;
        typescript)
            command -v node >/dev/null || echo 'need nodejs'
            [ -e /usr/share/nodejs/typescript ] || echo 'need node-typescript'
            ;;
        *)
            echo "there is no '$word'; there are r, javascript and typescript" >&2
            exit 2
            ;;
        esac
    done
    exit 0
    ;;
apply) ;;
*)
    echo "code-interpreter.sh: '$1' is neither need nor apply" >&2
    exit 2
    ;;
esac

"$python" -c 'import ipykernel, zmq'
mkdir -p "$lib"
cp "$here"/../interpreter/* "$lib/"
chmod 0644 "$lib"/*
chmod 0755 "$lib/server.py"
sed -i "1s|.*|#!$python -I|" "$lib/server.py"
"$python" -m compileall -q "$lib" || :
for m in numpy pandas matplotlib; do
    "$python" -c "import $m" 2>/dev/null || echo "warn Python has no $m"
done
if ! su -s /bin/sh user -c true 2>/dev/null; then
    echo 'account root'
fi
command -v node >/dev/null || echo 'warn there is no node: JavaScript cells are refused; add --with javascript'
# matplotlib looks through all fonts once; better now than in somebody's first plot
su -s /bin/sh user -c "HOME=/home/user '$python' -c 'import matplotlib.font_manager'" >/dev/null 2>&1 || :
# the same for where IPython keeps its own
su -s /bin/sh user -c "HOME=/home/user '$python' -c 'from IPython.paths import get_ipython_dir; get_ipython_dir()'" >/dev/null 2>&1 || :
