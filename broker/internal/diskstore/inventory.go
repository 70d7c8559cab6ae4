package diskstore

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// inventoryFiles contains the names of the two inventory files in the directory of the database. The newer of the two
// inventories is current.
var inventoryFiles = [2]string{"INVENTORY-1", "INVENTORY-2"}

// extent describes the start of a file by its length in bytes and its CRC-32C.
type extent struct {
	length int64
	sum    uint32
}

// add returns the extent of the file after b has been appended to e.
func (e extent) add(b []byte) extent {
	return extent{e.length + int64(len(b)), crc32.Update(e.sum, castagnoli, b)}
}

// inventory lists the durable files of a database, with the durable extent of each file. See
// docs/adr/0010-an-inventory-of-the-data-directory.md.
type inventory struct {
	number uint64 // the newer inventory has the higher number
	sealed bool   // the database was closed cleanly, and the list of files is complete
	files  map[string]extent
}

const inventoryTitle = "reprise-inventory"

// encode returns the inventory as text. Readers ignore bytes after LENGTH, so that a shorter inventory can overwrite
// a longer one in place.
//
//	reprise-inventory LENGTH CHECKSUM
//	number 17
//	sealed false
//	000004.sst 10931 8a30c4e1
func (v inventory) encode() []byte {
	var body bytes.Buffer
	fmt.Fprintf(&body, "number %d\nsealed %t\n", v.number, v.sealed)
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		e := v.files[name]
		fmt.Fprintf(&body, "%s %d %08x\n", name, e.length, e.sum)
	}
	text := fmt.Appendf(nil, "%s %d %08x\n", inventoryTitle, body.Len(), crc32.Checksum(body.Bytes(), castagnoli))
	return append(text, body.Bytes()...)
}

func decodeInventory(text []byte) (v inventory, err error) {
	invalid := errors.New("checksum does not match")
	title, rest, _ := bytes.Cut(text, []byte("\n"))
	var length int
	var sum uint32
	if _, err := fmt.Sscanf(string(title), inventoryTitle+" %d %x", &length, &sum); err != nil || length < 0 || length > len(rest) {
		return v, invalid
	}
	body := rest[:length]
	if crc32.Checksum(body, castagnoli) != sum {
		return v, invalid
	}
	v.files = make(map[string]extent)
	for line := range strings.Lines(string(body)) {
		words := strings.Fields(line)
		var err error
		switch {
		case len(words) == 2 && words[0] == "number":
			v.number, err = strconv.ParseUint(words[1], 10, 64)
		case len(words) == 2 && words[0] == "sealed":
			v.sealed, err = strconv.ParseBool(words[1])
		case len(words) == 3:
			var e extent
			e.length, err = strconv.ParseInt(words[1], 10, 64)
			sum, err2 := strconv.ParseUint(words[2], 16, 32)
			e.sum = uint32(sum)
			v.files[words[0]] = e
			err = errors.Join(err, err2)
		default:
			err = fmt.Errorf("line %q is not an inventory entry", line)
		}
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// readInventory returns the current inventory of a database, and any damage to the inventory files. After a crash, one
// of the two files may be torn. If both files are unreadable, readInventory returns an error.
func readInventory(fs vfs.FS, database string) (current inventory, wrong []Damage, err error) {
	found := 0
	for _, name := range inventoryFiles {
		name = fs.PathJoin(database, name)
		text, err := readFile(fs, name)
		var v inventory
		if err == nil {
			v, err = decodeInventory(text)
		}
		if err != nil {
			wrong = append(wrong, Damage{name, describe(err)})
			continue
		}
		if found++; found == 1 || v.number > current.number {
			current = v
		}
	}
	if found == 0 {
		return current, wrong, damaged(wrong)
	}
	// Earlier versions listed unfinished files, with length 0; see trackedFile.durable.
	maps.DeleteFunc(current.files, func(name string, e extent) bool { return isBulk(name) && e.length == 0 })
	return current, wrong, nil
}

// writeInventory overwrites both inventory files, and syncs the files and the directory.
func writeInventory(fs vfs.FS, database string, v inventory) error {
	for _, name := range inventoryFiles {
		if err := writeFile(fs, fs.PathJoin(database, name), v.encode()); err != nil {
			return err
		}
	}
	return syncDir(fs, database)
}

// sealInventory writes the sealed inventory of a database that no process has open. It reads all files to determine
// their extents, except tables and value files whose extents are in known and match their sizes.
func sealInventory(fs vfs.FS, database string, known map[string]extent) error {
	v := inventory{number: 1, sealed: true, files: make(map[string]extent)}
	names, err := fs.List(database)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !listed(name) {
			continue
		}
		path := fs.PathJoin(database, name)
		about, err := fs.Stat(path)
		if err != nil {
			return err
		}
		is, ok := known[name]
		if !ok || !isBulk(name) || about.Size() != is.length {
			if is, err = measure(fs, path, -1); err != nil {
				return err
			}
		}
		v.files[name] = is
	}
	return writeInventory(fs, database, v)
}

// listed reports whether the inventory must list the file with the given name.
func listed(name string) bool { return name != "LOCK" && !slices.Contains(inventoryFiles[:], name) }

// measure returns the extent of the first length bytes of a file, or of the whole file if length is negative.
func measure(fs vfs.FS, name string, length int64) (e extent, err error) {
	f, err := fs.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return e, err
	}
	defer f.Close()
	from := io.Reader(f)
	if length >= 0 {
		from = io.LimitReader(f, length)
	}
	buffer := make([]byte, 256<<10)
	for {
		n, err := from.Read(buffer)
		e = e.add(buffer[:n])
		if errors.Is(err, io.EOF) {
			return e, nil
		}
		if err != nil {
			return e, err
		}
	}
}

func readFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// writeFile writes a file and syncs it.
func writeFile(fs vfs.FS, name string, content []byte) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// describe returns the message of err. For a missing file, the message does not repeat the file name.
func describe(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "it is missing"
	}
	return err.Error()
}
