package mtl

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// maxIterations are some seconds of work; more would only be an attack by the server.
const maxIterations = 10_000_000

// scram is the client's half of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.
type scram struct {
	password, nonce, bare string
	expected              string // server-final-message
}

func newScram(user, password string) *scram {
	nonce := rand.Text()
	name := strings.NewReplacer("=", "=3D", ",", "=2C").Replace(norm.NFKC.String(user))
	return &scram{password: norm.NFKC.String(password), nonce: nonce, bare: "n=" + name + ",r=" + nonce}
}

// first returns client-first-message.
func (s *scram) first() string { return "n,," + s.bare }

// final returns client-final-message, the answer to server-first-message.
func (s *scram) final(serverFirst string) (string, error) {
	fields := map[byte]string{}
	for _, field := range strings.Split(serverFirst, ",") {
		if len(field) > 1 {
			fields[field[0]] = field[2:]
		}
	}
	nonce := fields['r']
	salt, noSalt := base64.StdEncoding.DecodeString(fields['s'])
	iterations, noNumber := strconv.Atoi(fields['i'])
	switch {
	case noSalt != nil, noNumber != nil, iterations < 1, iterations > maxIterations, !strings.HasPrefix(nonce, s.nonce):
		return "", fmt.Errorf("the broker's first SCRAM message is invalid: %s", serverFirst)
	}
	salted, err := pbkdf2.Key(sha256.New, s.password, salt, iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	withoutProof := "c=biws,r=" + nonce
	message := s.bare + "," + serverFirst + "," + withoutProof
	clientKey := sign(salted, "Client Key")
	storedKey := sha256.Sum256(clientKey)
	proof := sign(storedKey[:], message)
	for i := range proof {
		proof[i] ^= clientKey[i]
	}
	s.expected = "v=" + base64.StdEncoding.EncodeToString(sign(sign(salted, "Server Key"), message))
	return withoutProof + ",p=" + base64.StdEncoding.EncodeToString(proof), nil
}

// check checks server-final-message. A client must not continue before.
func (s *scram) check(serverFinal string) error {
	if s.expected == "" || serverFinal != s.expected {
		return errors.New("the broker has not proved that it knows the password")
	}
	return nil
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
