# Homebrew formula of aned. `./dev package brew` writes one with the address and
# the sum of a source tarball into .build/package. It has not been run on a Mac. No homepage: nothing is
# published yet.
class Aned < Formula
  desc "Local inference daemon for GGUF models on a Unix socket"
  url "@URL@"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "meson" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "cjson"
  depends_on "inih"
  depends_on "libuv"
  depends_on "llhttp"
  depends_on "pcre2"
  depends_on "protobuf-c"
  depends_on "sqlite"
  depends_on "utf8proc"

  uses_from_macos "libedit"

  def install
    system "meson", "setup", "build", "--buildtype=release", *std_meson_args
    system "meson", "compile", "-C", "build", "--verbose"
    system "meson", "install", "-C", "build"
  end

  # brew's services know no Unix sockets: aned makes its own, at the login.
  service do
    run [opt_bin/"aned", "serve", "--service"]
    keep_alive crashed: true
    process_type :interactive
    environment_variables PATH: std_service_path_env
    log_path var/"log/aned.log"
    error_log_path var/"log/aned.log"
  end

  def caveats
    <<~EOS
      Start aned with one of these, not with both:
        anectl service install     it starts with the first client
        brew services start aned   it starts at the login
      macOS has a daemon called aned too: never end one by its name.
    EOS
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/aned --version")
    (testpath/"aned.conf").write "[limits]\nqueue = 0\n"
    output = shell_output("#{bin}/aned serve --check --config aned.conf 2>&1", 78)
    assert_match "'queue' takes a whole number", output
    assert_match "no aned listens", shell_output("#{bin}/anectl --socket #{testpath}/s status 2>&1", 69)
  end
end
