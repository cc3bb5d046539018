// Gives a Go program for js under Node a GPU: node --require node.cjs. The npm package
// webgpu, which is Dawn, is found through NODE_PATH.
'use strict';
const {create, globals} = require('webgpu');
Object.assign(globalThis, globals);
Object.defineProperty(globalThis, 'navigator', {value: {gpu: create((process.env.KARAT_DAWN || '').split(',').filter(Boolean))}, configurable: true});
require('./gpu.js');
