# ./dev bench, and the engines that it measures against: read by dev, whose functions it uses.

peer() { # peer NAME: another engine, to measure against
    # tests/bench/peer.py knows the structures of these versions
    case "$1" in
        # only the library
        llama.cpp) peer_native llama.cpp xllamacpp==2026.10.11549 thirdparty/llama.cpp \
            -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF ;;
        # FA_ALL_QUANTS: attention over quantised keys, which nothing here uses
        ik) peer_native ik ik-llama-cpp-python==0.1.5 vendor/ik_llama.cpp -DGGML_IQK_FA_ALL_QUANTS=OFF ;;
    esac
}

# The packages bring a library for any machine, which would prove nothing (ik's
# also the structures); their source distributions bring a better one. Neither
# is built as a package: only its library is wanted, and ik's archive lacks a file
# of what the library does not need.
peer_native() { # peer_native NAME PACKAGE DIR FLAG...: DIR holds its CMakeLists.txt
    engine=$1 package=$2 dir=$3 box=$out/peer-$1
    shift 3
    venv "venv-peer-$engine" cmake ninja "$package"
    [ ! -d "$box/build" ] || [ -z "$(find "$box/build" -name libllama.so)" ] || return 0
    say "dev: building $engine for this machine: minutes, once"
    rm -rf "$box"
    mkdir -p "$box/src"
    (
        PATH=$out/venv-peer-$engine/bin:$PATH
        pip download -q --disable-pip-version-check --no-deps --no-binary="${package%%=*}" -d "$box" "$package" </dev/null
        tar xzf "$box"/*.tar.gz -C "$box/src" --strip-components=1
        cmake -G Ninja -S "$box/src/$dir" -B "$box/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
            -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF "$@"
        cmake --build "$box/build" --target llama
    ) >"$out/peer-$engine.log" 2>&1 || say "dev: it failed (.build/peer-$engine.log): measuring the ready-made library"
}

# llama.cpp's converter of schemas, which only a C++ program can call: the package's library has it, built with C++'s old strings.
peer_gbnf() {
    shim=$out/peer-gbnf.so from=$out/peer-llama.cpp/src/thirdparty/llama.cpp
    [ ! -f "$shim" ] || return 0
    g++ -std=c++17 -O1 -shared -fPIC -D_GLIBCXX_USE_CXX11_ABI=0 -I"$from/common" -I"$from/include" -I"$from/ggml/include" \
        tests/bench/peer_gbnf.cpp -o "$shim" || die "llama.cpp's converter of schemas does not build"
}

asks() { # asks "$*" OPTION VALUE...: whether the arguments set OPTION to one of them
    all=" $1 " option=$2
    shift 2
    for v in "$@"; do
        case "$all" in *" $option $v "* | *" $option=$v "*) return 0 ;; esac
    done
    return 1
}

cmd_bench() {
    need test
    script=bench.py targets='' what=${1:-}
    case "$what" in
        random | lossless)
            shift
            build release "tests/bench/$what"
            exec "$out/release/tests/bench/$what" "$@"
            ;;
        cpu) script=bench_cpu.py targets=tests/bench/bench_cpu ;;
        http) script=bench_http.py targets='tests/bench/bench_cpu tests/bench/bench_streams' ;;
        overhead) script=overhead.py targets=tests/bench/bench_streams ;;
        constrain) script=bench_constrain.py targets=tests/bench/bench_constrain ;;
        sweep) script=sweep.py targets=tests/bench/sweep ;;
        day | memory | exact) script=$what.py ;;
        agents | latency | shapes | speculation) script=bench_$what.py ;;
        *) what='' ;;
    esac
    [ -z "$what" ] || shift
    build release
    # shellcheck disable=SC2086
    [ -z "$targets" ] || build release $targets
    # shellcheck disable=SC2086
    venv venv $venv_test
    for p in llama.cpp ik; do
        ! asks "$*" --peer "$p" || peer "$p"
    done
    case "$what" in
        cpu) ! asks "$*" --shape gemma || gemma_file ;;
        constrain) asks "$*" --shape 0.5b demo || gemma_file
            ! asks "$*" --peer llama.cpp || peer_gbnf ;;
        overhead) case "$*" in *gemma*) gemma_file ;; esac ;;
        agents) gemma_file ;;
        day) asks "$*" --model demo stories || gemma_file ;;
        memory) asks "$*" --model demo || gemma_file ;;
        speculation) asks "$*" --shape 0.5b demo || gemma_file ;;
        exact | sweep) ! asks "$*" --model gemma || gemma_file ;;
    esac
    ANED_BIN=$out/release exec "$out/venv/bin/python" "tests/bench/$script" "$@"
}
