//go:build !nogpu && ((linux && !android) || windows) && (amd64 || arm64)

package gpu

import (
	"reflect"

	"github.com/gogpu/wgpu/hal"
	"github.com/gogpu/wgpu/hal/vulkan"
	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// memoryOf returns the size of the largest heap of an adapter's own memory; 0 is unknown. WebGPU does not say, and the
// library keeps the handles of Vulkan private: if a later version renames the handles, the size is unknown, and a test
// fails.
func memoryOf(a hal.Adapter) (bytes int64) {
	v, ok := a.(*vulkan.Adapter)
	if !ok {
		return 0
	}
	of := reflect.ValueOf(v).Elem()
	device, instance := of.FieldByName("physicalDevice"), of.FieldByName("instance")
	if !device.IsValid() || !device.CanUint() || !instance.IsValid() || instance.Kind() != reflect.Pointer ||
		instance.IsNil() {
		return 0
	}
	commands := instance.Elem().FieldByName("cmds")
	if !commands.IsValid() || commands.Type() != reflect.TypeFor[vk.Commands]() {
		return 0
	}
	var all vk.PhysicalDeviceMemoryProperties
	(*vk.Commands)(commands.Addr().UnsafePointer()).GetPhysicalDeviceMemoryProperties(vk.PhysicalDevice(device.Uint()),
		&all)
	for _, h := range all.MemoryHeaps[:min(int(all.MemoryHeapCount), len(all.MemoryHeaps))] {
		if vk.MemoryHeapFlagBits(h.Flags)&vk.MemoryHeapDeviceLocalBit != 0 && h.Size < 1<<62 {
			bytes = max(bytes, int64(h.Size))
		}
	}
	return bytes
}
