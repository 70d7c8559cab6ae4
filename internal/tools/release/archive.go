package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"
)

// file is a file or a directory in an archive.
type file struct {
	name    string
	mode    fs.FileMode // default: 0644
	owner   int         // user and group
	content []byte
}

func (f file) permissions() fs.FileMode {
	if f.mode == 0 {
		return 0o644
	}
	return f.mode
}

// packArchive writes the archive of a target: .zip for Windows, .tar.gz for other systems.
func (r *release) packArchive(program []byte, system, arch string, docs documents) error {
	base := r.base(system, arch)
	name := "reprise"
	if system == "windows" {
		name += ".exe"
	}
	files := []file{{name: path.Join(base, name), mode: 0o755, content: program}}
	for _, d := range docs {
		d.name = path.Join(base, d.name)
		files = append(files, d)
	}
	if system == "windows" {
		content, err := zipped(files, r.time)
		if err != nil {
			return err
		}
		return r.write(base+".zip", content)
	}
	content, err := tarball(files, r.time)
	if err != nil {
		return err
	}
	compressed, err := gzipped(content)
	if err != nil {
		return err
	}
	return r.write(base+".tar.gz", compressed)
}

// tarball returns a tar archive. at is the modification time of all files.
func tarball(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{
			Name: f.name, Mode: int64(f.permissions().Perm()), Uid: f.owner, Gid: f.owner,
			Size: int64(len(f.content)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		}
		if f.mode.IsDir() {
			h.Name, h.Typeflag = f.name+"/", tar.TypeDir
		}
		if f.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("cannot archive %s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("cannot archive %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("cannot complete archive: %w", err)
	}
	return b.Bytes(), nil
}

// zipped returns a zip archive. at is the modification time of all files.
func zipped(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.permissions())
		to, err := w.CreateHeader(h)
		if err != nil {
			return nil, fmt.Errorf("cannot archive %s: %w", f.name, err)
		}
		if _, err := to.Write(f.content); err != nil {
			return nil, fmt.Errorf("cannot archive %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("cannot complete archive: %w", err)
	}
	return b.Bytes(), nil
}

// gzipped compresses content. The header has neither a name nor a time.
func gzipped(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("cannot compress: %w", err)
	}
	return b.Bytes(), nil
}
