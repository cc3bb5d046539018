// The worker of a browser: Go's support, the GPU's, and the operations.
import './wasm_exec.js';
import './gpu.js';
import { serve } from './worker.js';

serve(() => new Worker(location.href, { type: 'module' }));
