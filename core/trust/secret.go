package trust

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// EnvSecret names the environment variable that, if set, holds the path of the
// file with the user's secret, in place of ~/.config/sar/secret.
const EnvSecret = "SAR_SECRET_FILE"

const secretBytes = 32

// DerivedToken makes a job token of what anybody may know of a job, such as its
// number at a scheduler, and the secret that only this user can read. Workers
// that share the user's home get the same.
func DerivedToken(public string) (string, error) {
	secret, err := userSecret()
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(mac(secret, "sar derived token 1", []byte(public))), nil
}

func secretPath() (string, error) {
	if path := os.Getenv(EnvSecret); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("this user has no home directory for a secret (%w): set %s to a file that only this user "+
			"can read", err, EnvSecret)
	}
	return filepath.Join(dir, "sar", "secret"), nil
}

// userSecret reads the secret, and makes it the first time.
func userSecret() ([]byte, error) {
	path, err := secretPath()
	if err != nil {
		return nil, err
	}
	secret, err := readSecret(path)
	if !errors.Is(err, os.ErrNotExist) {
		return secret, err
	}
	if err := makeSecret(path); err != nil {
		return nil, fmt.Errorf("the secret of this user cannot be made in %s: %w; set %s to a file that can", path, err,
			EnvSecret)
	}
	return readSecret(path)
}

func readSecret(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("reading the secret of this user: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file: remove it", path)
	case ok && int64(owner.Uid) != int64(os.Geteuid()):
		return nil, fmt.Errorf("%s belongs to user id %d and this process to %d: remove it, or set %s to a file of this user",
			path, owner.Uid, os.Geteuid(), EnvSecret)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s can be read by others (mode %04o), so it is no secret: remove it, or chmod 600 if "+
			"nobody has read it", path, info.Mode().Perm())
	}
	text := make([]byte, 2*secretBytes+1)
	n, err := io.ReadFull(f, text)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	secret, err := hex.DecodeString(strings.TrimSuffix(string(text[:n]), "\n"))
	if err != nil || len(secret) != secretBytes {
		return nil, fmt.Errorf("%s does not hold %d hexadecimal digits: remove it, and another one is made", path,
			2*secretBytes)
	}
	return secret, nil
}

// makeSecret makes the file whole or not at all. Of several processes that do so
// at once one wins, and the others find its file.
func makeSecret(path string) error {
	secret := make([]byte, secretBytes)
	rand.Read(secret)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".secret-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(hex.EncodeToString(secret) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
