package trust

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

func TestDerivedToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "secret")
	t.Setenv(EnvSecret, path)
	var tokens []string
	for _, public := range []string{"1", "1", "2"} {
		token, err := DerivedToken(public)
		if err != nil || !regexp.MustCompile("^[0-9a-f]{64}$").MatchString(token) {
			t.Fatal(token, err)
		}
		tokens = append(tokens, token)
	}
	if tokens[0] != tokens[1] || tokens[1] == tokens[2] {
		t.Error(tokens)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Error("something is left beside the secret")
	}
	text, _ := os.ReadFile(path)
	if strings.Contains(tokens[0]+tokens[2], strings.TrimSpace(string(text))) {
		t.Error("a token is the secret itself")
	}
}

func TestSecretsThatAreNone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	t.Setenv(EnvSecret, path)
	wants := func(words string) {
		t.Helper()
		if _, err := DerivedToken("1"); err == nil || !strings.Contains(err.Error(), words) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%q is not in: %v", words, err)
		}
	}
	if _, err := DerivedToken("1"); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(path, 0o640)
	wants("can be read by others (mode 0640)")
	_ = os.Chmod(path, 0o600)
	_ = os.WriteFile(path, []byte("what is this"), 0o600)
	wants("does not hold 64 hexadecimal digits")
	_ = os.WriteFile(path, nil, 0o600)
	wants(path)
	_ = os.Remove(path)
	_ = os.Symlink(filepath.Join(dir, "elsewhere"), path)
	wants("symbolic links")
	_ = os.Remove(path)
	_ = os.Mkdir(path, 0o700)
	wants("no regular file")
	if os.Geteuid() == 0 {
		_ = os.Remove(path)
		_ = os.WriteFile(path, []byte(strings.Repeat("0", 64)), 0o600)
		_ = os.Chown(path, 65534, -1)
		wants("belongs to user id 65534")
	}
	path = "/proc/secret"
	t.Setenv(EnvSecret, path)
	wants("cannot be made")
}

// Of several processes that make the secret at once, all use one.
func TestSecretsMadeAtOnce(t *testing.T) {
	t.Setenv(EnvSecret, filepath.Join(t.TempDir(), "secret"))
	var wg sync.WaitGroup
	tokens := make([]string, 16)
	for i := range tokens {
		wg.Go(func() { tokens[i], _ = DerivedToken("1") })
	}
	wg.Wait()
	for _, token := range tokens {
		if token == "" || token != tokens[0] {
			t.Fatal(tokens)
		}
	}
}
