class Reprise < Formula
  desc "Reliable message processing on RabbitMQ"
  homepage "https://github.com/reprisemq/reprise"
  version "{{version}}"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "{{url "darwin" "arm64"}}"
      sha256 "{{sum "darwin" "arm64"}}"
    end
    on_intel do
      url "{{url "darwin" "amd64"}}"
      sha256 "{{sum "darwin" "amd64"}}"
    end
  end
  on_linux do
    on_arm do
      url "{{url "linux" "arm64"}}"
      sha256 "{{sum "linux" "arm64"}}"
    end
    on_intel do
      url "{{url "linux" "amd64"}}"
      sha256 "{{sum "linux" "amd64"}}"
    end
  end

  def install
    bin.install "reprise"
    man1.install "reprise.1"
    bash_completion.install "completions/reprise.bash" => "reprise"
    zsh_completion.install "completions/_reprise"
    fish_completion.install "completions/reprise.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/reprise version")
  end
end
