package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// image is an image of the program alone, for several processors, in OCI's layout.
type image struct {
	version, commit string
	date            time.Time

	blobs map[string][]byte // by hash
}

// descriptor is OCI's: what a blob is, and its hash.
type descriptor struct {
	Media       string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// add keeps a blob.
func (im *image) add(media string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:])
	im.blobs[hash] = data
	return descriptor{Media: media, Digest: "sha256:" + hash, Size: len(data)}
}

// addJSON keeps a value as a blob of JSON.
func (im *image) addJSON(media string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	return im.add(media, data), err
}

const ociType = "application/vnd.oci.image."

// write writes the layout as a tar file. programs are by Go's names of processors.
func (im *image) write(path string, programs map[string]string) error {
	im.blobs = map[string][]byte{}
	var manifests []descriptor
	for _, arch := range slices.Sorted(maps.Keys(programs)) {
		m, err := im.platform(arch, programs[arch])
		if err != nil {
			return err
		}
		manifests = append(manifests, m)
	}
	labels := im.labels()
	index, err := im.addJSON(ociType+"index.v1+json", map[string]any{"schemaVersion": 2,
		"mediaType": ociType + "index.v1+json", "manifests": manifests, "annotations": labels})
	if err != nil {
		return err
	}
	index.Annotations = map[string]string{"org.opencontainers.image.ref.name": im.version}
	top, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ociType + "index.v1+json",
		"manifests": []descriptor{index}})
	if err != nil {
		return err
	}
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": top}
	for hash, data := range im.blobs {
		files["blobs/sha256/"+hash] = data
	}
	layout, err := im.tar(files, 0o644)
	if err != nil {
		return err
	}
	return os.WriteFile(path, layout, 0o644)
}

// labels are the annotations that registries and scanners read.
func (im *image) labels() map[string]string {
	const p = "org.opencontainers.image."
	return map[string]string{p + "title": "karat", p + "version": im.version, p + "revision": im.commit,
		p + "created": im.date.Format(time.RFC3339), p + "licenses": "Apache-2.0",
		p + "source":      "https://github.com/karat-run/karat",
		p + "description": "Run language models, and check that their logits are right"}
}

// platform keeps the image of one processor: a layer with the program, and how to start it.
func (im *image) platform(arch, program string) (descriptor, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return descriptor{}, err
	}
	plain, err := im.tar(map[string][]byte{"karat": data}, 0o755)
	if err != nil {
		return descriptor{}, err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return descriptor{}, err
	}
	if _, err := z.Write(plain); err != nil {
		return descriptor{}, err
	}
	if err := z.Close(); err != nil {
		return descriptor{}, err
	}
	layer := im.add(ociType+"layer.v1.tar+gzip", packed.Bytes())
	config, err := im.addJSON(ociType+"config.v1+json", map[string]any{
		"created": im.date.Format(time.RFC3339), "architecture": arch, "os": "linux",
		"config": map[string]any{"User": "65532:65532", "ExposedPorts": map[string]any{"8080/tcp": struct{}{}},
			"Entrypoint": []string{"/karat", "serve", "--host", "0.0.0.0"}, "Labels": im.labels()},
		"rootfs": map[string]any{"type": "layers",
			"diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(plain))}},
		"history": []any{map[string]any{"created": im.date.Format(time.RFC3339), "created_by": "karat-release"}}})
	if err != nil {
		return descriptor{}, err
	}
	m, err := im.addJSON(ociType+"manifest.v1+json", map[string]any{"schemaVersion": 2,
		"mediaType": ociType + "manifest.v1+json", "config": config, "layers": []descriptor{layer}})
	m.Platform = map[string]string{"os": "linux", "architecture": arch}
	return m, err
}

// tar packs files of root's, in the order of their names.
func (im *image) tar(files map[string][]byte, mode int64) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data := files[name]
		h := tar.Header{Name: name, Mode: mode, Size: int64(len(data)), ModTime: im.date, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
