// The words of the interface. Each language has the same keys; a test sees to it.
const WORDS = {
	en: {
		skip: 'Skip to the content', tabs: 'Parts of the page', chat: 'Chat', proof: 'Proof', bench: 'Bench', probe: 'Probe', language: 'Language', theme: 'Light or dark', themeAuto: 'System', themeLight: 'Light', themeDark: 'Dark',
		loading: 'Loading', models: 'Models', close: 'Close', dismiss: 'Dismiss', again: 'Load it again', useCPU: 'Use the processor', restart: 'Restart',

		starting: 'Loading the program…', loadingModel: 'Loading {name}…', noModel: 'No model is loaded.', modelLine: ' · {arch}, {bytes} of weights · {device} · memory {memory}', memoryBoth: '{own}, and {gpu} on the GPU', processor: 'processor (WebAssembly)',
		onCPU: 'This browser offers no WebGPU, so the model runs on the processor: slower, and right as well. A current Chrome, Edge, Firefox or Safari has it where the system has a GPU.',
		onCPUFallback: 'The only GPU that this browser offers is a program that stands in for one, so the model runs on the processor, which begins sooner. “Runs on: the GPU” under Models tries it all the same.',
		fallback: 'There is no real GPU here: a program stands in for one (a software adapter). The numbers are right, the speed is not a GPU’s.',
		hangs: 'It has not stopped yet. Restarting loads the model again.', busyNow: 'Something runs on the model: stop it first.',

		error_other: 'That went wrong.', error_lost: 'The GPU was lost: the driver restarted, the device went to sleep, or another program took its memory. Load the model again; if that happens often, use the processor.',
		error_shader: 'The GPU’s compiler refused one of the programs for it. The model can run on the processor. A newer browser or driver may help; please report the text below.',
		error_memory: 'There is not enough memory for this model. Close other pages, or take a smaller model or one in fewer bits.',
		error_file: 'This file cannot be used. It must be a complete GGUF file of a model that Karat knows; download it again, or choose another.',
		error_network: 'The network did not give the file. Check the connection and the address; the site must allow other pages to read it (CORS). What came is kept, and a download goes on where it stopped.',
		error_quota: 'The browser has not enough room for this file. Delete a kept model, or free space on the disk, and try again; a local file needs no room.',
		error_hash: 'The file’s SHA-256 is not the expected one: it was damaged or changed on the way, and is not used. Download it again from a place that you trust.',
		error_store: 'This browser keeps no files for this page (a private window, perhaps). The demo and local files work.', error_taken: 'Another tab of this page uses this file. Close it, then try again.',
		error_crash: 'The program has ended unexpectedly. Restarting it loads the model again.', error_full: 'The context is full. Forget the conversation, or write less.', error_template: 'The model’s chat template cannot be applied. Choose “Continue a text” instead.',
		error_busy: 'Something runs on the model: stop it first.', error_empty: 'No model is loaded: choose one under Models.', error_old: 'This page needs WebAssembly, workers, and an address that begins with https:// or http://127.0.0.1.', 'error_no-gpu': 'There is no GPU that this browser offers to pages. The model can run on the processor.',

		backend: 'Runs on', backendAuto: 'the GPU where there is one', backendGPU: 'the GPU', backendCPU: 'the processor', demo: 'Load the demo', localFile: 'Open a file…', localHelp: 'A GGUF file on this device is read piece by piece, and not copied. Of a split one choose all parts together.',
		network: 'From the network', address: 'Address of a GGUF file', addressHelp: 'The browser downloads it from there and keeps it; a download that breaks goes on where it stopped. Of a split one the address of one part brings all.', sum: 'Its SHA-256, if you know it', download: 'Download', badAddress: 'This is no address.', badSum: 'A SHA-256 has 64 digits 0–9 and a–f.',
		kept: 'Kept in this browser', room: 'Room used', roomUsed: '{usage} of {quota} are used', nothingKept: 'Nothing is kept.', pause: 'Pause', pauseName: 'Pause {name}', use: 'Use', useName: 'Use {name}', check: 'Check', checkName: 'Check the SHA-256 of {name}', resume: 'Resume', resumeName: 'Resume {name}',
		remove: 'Delete', removeName: 'Delete {name}', size: '{size}', loaded: '{have} of {size}', checking: 'checking, {have} of {size}', checked: '{size}, its SHA-256 is right', downloadOf: 'Download of {name}', downloaded: '{name} is downloaded and checked',

		conversation: 'Conversation', message: 'Message', send: 'Send', stop: 'Stop', showPrompt: 'Prompt and ids', promptTitle: 'The prompt, by the model’s own template', promptText: 'The prompt, as it is', template: 'The template itself', forget: 'New', mode: 'What to do', modeChat: 'Chat, by the template', modeText: 'Continue a text',
		maxTokens: 'Most tokens', temperature: 'Temperature', topK: 'Top-k', topP: 'Top-p', minP: 'Min-p', seed: 'Seed', repeatPenalty: 'Repeat penalty', repeatLast: 'Of last tokens', samplingHelp: 'Temperature 0 takes the likeliest token. A 0 switches the others off. −1 of the last tokens are all.', recommended: 'As the publisher recommends', sampling: 'Settings',
		emptyChat: 'Write something. It stays in this browser.', emptyText: 'Write the beginning of a text, and the model goes on.', you: 'You', answer: 'Model',
		speedNow: '{tokens} tokens, {rate} a second', speed: '{tokens} tokens, {rate} a second · first after {first} s · prompt of {prompt} tokens ({kept} kept) in {promptSeconds} s · {why}', stop_end: 'ended', stop_stop: 'a stop string', stop_length: 'reached the most tokens', stop_aborted: 'stopped', tokenCount: '{n} tokens',

		proofTitle: 'Does this browser compute it right?', proofHelp: 'The demo travels with a record of its logits for eleven prompts, in 64-bit floats. Here they are computed on this device in 32-bit floats, and compared. A prompt is inside if no logit is further away than 4 times what 32-bit floats cost PyTorch. For other models five texts are computed in 64-bit floats on the processor first, which takes long with a large one; inside is a KL divergence of at most 1e-5.',
		proofRun: 'Run the proof', proofAt: 'step {done} of {total}', proofOther: 'No record travels with this model, so five texts were computed in 64-bit floats on the processor here, from the same file, to compare with.', proofGood: 'Right.', proofBad: 'Wrong.',
		proofGoodWhy: 'On {device}, all {n} prompts are as near to the 64-bit result as rounding allows: the largest difference of a logit is {worst}, and the mean KL divergence is {kl} nats.',
		proofBadWhy: 'On {device}, {bad} of {n} prompts are further from the 64-bit result than rounding explains: the largest difference of a logit is {worst}, and the mean KL divergence is {kl} nats. The browser, the driver or Karat has a fault: please report this table.',
		proofTable: 'Prompts against the record', promptColumn: 'Prompt', kl: 'KL, nats', maxDiff: 'Largest Δ', limit: 'Limit', top1: 'Top-1', top5: 'Top-5', top10: 'Top-10', verdict: 'Verdict', inside: 'inside', outside: 'outside',
		tapsTable: 'Worst taps', tapsHelp: 'What the nodes inside the model compute for prompt 2, against 64-bit floats computed on the processor: where a fault begins.', tap: 'Node', rowsColumn: 'Tokens', whole: 'Relative error', worst: 'Of the worst token',

		benchTitle: 'How fast is it here?', benchHelp: 'One prompt, computed anew each time, then greedy tokens. The result has all that another needs to do the same.', benchRun: 'Run', benchPrompt: 'Prompt', withTemplate: 'apply the chat template', benchTokens: 'Tokens', warmUp: 'Warm-up', repetitions: 'Repetitions',
		warming: 'warm-up {i} of {n}', repeating: 'run {i} of {n}', timing: 'the times of kernels', benchTable: 'Tokens a second', test: 'Part', tokensColumn: 'Tokens', rate: 'Per second', decode: 'Decoding', benchSaid: 'Median ± standard deviation of {n} runs, after {warm} to warm up.',
		benchMemory: 'Memory: {memory}.', kernels: 'Where the GPU’s time goes', kernelsHelp: 'Of one more run, in which each kernel is timed by itself; so they take longer together than in the runs above. Browsers round these times.', noKernels: 'The times of kernels are not known: this browser gives pages no time stamps of the GPU.', kernel: 'Kernel', calls: 'Calls', milliseconds: 'ms', share: 'Share',
		benchJSON: 'The result as JSON', copy: 'Copy', copied: 'Copied', copyByHand: 'Selected: copy it', benchDone: 'Done: {rate} tokens a second.',

		probeTitle: 'What does a node compute?', probeHelp: 'Every value of one node, for all tokens of a text: nothing is sampled or padded, and the type is the node’s.', probeRun: 'Compute', probeText: 'Text', node: 'Node', before: 'Node before', next: 'Next node', noNode: 'There is no node of this name.',
		probeStrange: '{nan} values are no numbers (NaN) and {inf} infinite: something is broken.', operation: 'Operation', dtype: 'Type', shape: 'Shape', values: 'Values', minimum: 'Minimum', maximum: 'Maximum', mean: 'Mean', std: 'Standard deviation', rms: 'RMS', zeros: 'Zeros', nans: 'NaN', infs: 'Infinite',
		histogram: 'Histogram', histogramLabel: 'Histogram from {from} to {to}; the tallest bar holds {most} values', histogramHelp: 'Heights are logarithms of counts.', rows: 'By token', row: 'Position', tokenColumn: 'Token', probeDone: '{name}: RMS {rms}',
	},
	ar: {
		skip: 'انتقل إلى المحتوى', tabs: 'أقسام الصفحة', chat: 'محادثة', proof: 'برهان', bench: 'قياس', probe: 'فحص', language: 'اللغة', theme: 'فاتح أو داكن', themeAuto: 'حسب النظام', themeLight: 'فاتح', themeDark: 'داكن',
		loading: 'جارٍ التحميل', models: 'النماذج', close: 'إغلاق', dismiss: 'إخفاء', again: 'حمّله من جديد', useCPU: 'استخدم المعالج', restart: 'إعادة التشغيل',

		starting: 'جارٍ تحميل البرنامج…', loadingModel: 'جارٍ تحميل {name}…', noModel: 'لا نموذج محمّل.', modelLine: ' · {arch}، أوزانه {bytes} · {device} · الذاكرة {memory}', memoryBoth: '{own}، و{gpu} على بطاقة الرسوميات', processor: 'المعالج (WebAssembly)',
		onCPU: 'لا يوفّر هذا المتصفح WebGPU، لذلك يعمل النموذج على المعالج: أبطأ، وبالصحة نفسها. توفّره الإصدارات الحديثة من Chrome وEdge وFirefox وSafari حيث توجد بطاقة رسوميات.',
		onCPUFallback: 'بطاقة الرسوميات الوحيدة التي يوفّرها هذا المتصفح برنامج يحل محلها، لذلك يعمل النموذج على المعالج لأنه يبدأ أسرع. ويمكن تجربتها باختيار «يعمل على: بطاقة الرسوميات» في «النماذج».',
		fallback: 'لا توجد بطاقة رسوميات حقيقية هنا، بل برنامج يحل محلها. الأرقام صحيحة، أما السرعة فليست سرعة بطاقة رسوميات.',
		hangs: 'لم يتوقف بعد. إعادة التشغيل تحمّل النموذج من جديد.', busyNow: 'النموذج مشغول: أوقفه أولًا.',

		error_other: 'حدث خطأ.', error_lost: 'فُقدت بطاقة الرسوميات: أُعيد تشغيل برنامج تعريفها أو نام الجهاز أو أخذ برنامج آخر ذاكرتها. حمّل النموذج من جديد، وإن تكرر ذلك فاستخدم المعالج.',
		error_shader: 'رفض مترجم بطاقة الرسوميات أحد برامجها. يمكن أن يعمل النموذج على المعالج. قد يفيد متصفح أو برنامج تعريف أحدث؛ نرجو الإبلاغ عن النص أدناه.',
		error_memory: 'الذاكرة لا تكفي لهذا النموذج. أغلق صفحات أخرى، أو اختر نموذجًا أصغر أو أقل بتات.',
		error_file: 'لا يمكن استخدام هذا الملف. يجب أن يكون ملف GGUF كاملًا لنموذج يعرفه Karat؛ نزّله من جديد أو اختر غيره.',
		error_network: 'لم تعطِ الشبكة الملف. تحقق من الاتصال ومن العنوان؛ وعلى الموقع أن يسمح للصفحات الأخرى بقراءته (CORS). ما وصل محفوظ، ويُستأنف التنزيل من حيث توقف.',
		error_quota: 'لا مكان كافيًا في المتصفح لهذا الملف. احذف نموذجًا محفوظًا أو أفرغ مكانًا على القرص وأعد المحاولة؛ الملف المحلي لا يحتاج مكانًا.',
		error_hash: 'بصمة SHA-256 للملف ليست المتوقعة: تلف الملف أو تغيّر في الطريق، ولن يُستخدم. نزّله من جديد من مكان تثق به.',
		error_store: 'لا يحفظ هذا المتصفح ملفات لهذه الصفحة (ربما نافذة خاصة). النموذج التجريبي والملفات المحلية تعمل.', error_taken: 'علامة تبويب أخرى من هذه الصفحة تستخدم هذا الملف. أغلقها ثم أعد المحاولة.',
		error_crash: 'انتهى البرنامج على غير المتوقع. إعادة تشغيله تحمّل النموذج من جديد.', error_full: 'امتلأ السياق. ابدأ محادثة جديدة أو اكتب أقل.', error_template: 'لا يمكن تطبيق قالب محادثة هذا النموذج. اختر «إكمال نص» بدلًا منه.',
		error_busy: 'النموذج مشغول: أوقفه أولًا.', error_empty: 'لا نموذج محمّل: اختر واحدًا من «النماذج».', error_old: 'تحتاج هذه الصفحة إلى WebAssembly وإلى العمّال (workers) وإلى عنوان يبدأ بـ https:// أو http://127.0.0.1.', 'error_no-gpu': 'لا بطاقة رسوميات يوفّرها هذا المتصفح للصفحات. يمكن أن يعمل النموذج على المعالج.',

		backend: 'يعمل على', backendAuto: 'بطاقة الرسوميات حيث توجد', backendGPU: 'بطاقة الرسوميات', backendCPU: 'المعالج', demo: 'حمّل النموذج التجريبي', localFile: 'افتح ملفًا…', localHelp: 'يُقرأ ملف GGUF من هذا الجهاز قطعة قطعة ولا يُنسخ. وإن كان مقسّمًا فاختر كل أجزائه معًا.',
		network: 'من الشبكة', address: 'عنوان ملف GGUF', addressHelp: 'ينزّله المتصفح من هناك ويحفظه؛ والتنزيل الذي ينقطع يُستأنف من حيث توقف. وعنوان جزء من ملف مقسّم يجلب كل أجزائه.', sum: 'بصمة SHA-256 إن كنت تعرفها', download: 'تنزيل', badAddress: 'هذا ليس عنوانًا.', badSum: 'بصمة SHA-256 فيها 64 رقمًا من 0–9 وa–f.',
		kept: 'محفوظ في هذا المتصفح', room: 'المكان المستخدم', roomUsed: 'استُخدم {usage} من {quota}', nothingKept: 'لا شيء محفوظ.', pause: 'إيقاف مؤقت', pauseName: 'إيقاف {name} مؤقتًا', use: 'استخدام', useName: 'استخدام {name}', check: 'تحقق', checkName: 'التحقق من بصمة {name}', resume: 'استئناف', resumeName: 'استئناف {name}',
		remove: 'حذف', removeName: 'حذف {name}', size: '{size}', loaded: '{have} من {size}', checking: 'جارٍ التحقق، {have} من {size}', checked: '{size}، وبصمته صحيحة', downloadOf: 'تنزيل {name}', downloaded: 'نُزّل {name} وجرى التحقق منه',

		conversation: 'المحادثة', message: 'رسالة', send: 'إرسال', stop: 'إيقاف', showPrompt: 'النص المُعدّ والرموز', promptTitle: 'النص المُعدّ بقالب النموذج نفسه', promptText: 'النص كما هو', template: 'القالب نفسه', forget: 'جديد', mode: 'المطلوب', modeChat: 'محادثة بالقالب', modeText: 'إكمال نص',
		maxTokens: 'أقصى عدد للرموز', temperature: 'الحرارة', topK: 'Top-k', topP: 'Top-p', minP: 'Min-p', seed: 'البذرة', repeatPenalty: 'عقوبة التكرار', repeatLast: 'لآخر الرموز', samplingHelp: 'الحرارة 0 تأخذ الرمز الأرجح. والصفر يعطّل بقية الخيارات. و−1 لآخر الرموز تعني كلها.', recommended: 'كما يوصي الناشر', sampling: 'الإعدادات',
		emptyChat: 'اكتب شيئًا. كل شيء يبقى في هذا المتصفح.', emptyText: 'اكتب بداية نص فيكمله النموذج.', you: 'أنت', answer: 'النموذج',
		speedNow: '{tokens} رمزًا، {rate} في الثانية', speed: '{tokens} رمزًا، {rate} في الثانية · الأول بعد {first} ث · نص من {prompt} رمزًا (منها {kept} محفوظة) في {promptSeconds} ث · {why}', stop_end: 'انتهى', stop_stop: 'نص توقف', stop_length: 'بلغ أقصى عدد للرموز', stop_aborted: 'أُوقف', tokenCount: 'عدد الرموز: {n}',

		proofTitle: 'هل يحسب هذا المتصفح حسابًا صحيحًا؟', proofHelp: 'يأتي مع النموذج التجريبي سجل لقيمه (logits) لأحد عشر نصًا بأعداد من 64 بتًا. تُحسب هنا على هذا الجهاز بأعداد من 32 بتًا وتُقارن. يكون النص ضمن الحد إذا لم تبعد أي قيمة أكثر من 4 أضعاف ما تكلّفه أعداد 32 بتًا في PyTorch. وللنماذج الأخرى تُحسب أولًا خمسة نصوص بأعداد من 64 بتًا على المعالج، وهذا يطول مع النموذج الكبير؛ والحد عندها تباعد KL لا يتجاوز 1e-5.',
		proofRun: 'شغّل البرهان', proofAt: 'الخطوة {done} من {total}', proofOther: 'لا سجل مرفقًا بهذا النموذج، لذلك حُسبت خمسة نصوص هنا على المعالج بأعداد من 64 بتًا من الملف نفسه للمقارنة بها.', proofGood: 'صحيح.', proofBad: 'خطأ.',
		proofGoodWhy: 'على {device}: كل النصوص ({n}) قريبة من النتيجة ذات 64 بتًا بقدر ما يسمح التقريب: أكبر فرق {worst}، ومتوسط تباعد KL هو {kl} نات.',
		proofBadWhy: 'على {device}: {bad} من {n} نصوص أبعد عن النتيجة ذات 64 بتًا مما يفسره التقريب: أكبر فرق {worst}، ومتوسط تباعد KL هو {kl} نات. في المتصفح أو برنامج التعريف أو Karat عطل: نرجو الإبلاغ عن هذا الجدول.',
		proofTable: 'النصوص مقابل السجل', promptColumn: 'النص', kl: 'KL بالنات', maxDiff: 'أكبر فرق', limit: 'الحد', top1: 'الأول', top5: 'أول 5', top10: 'أول 10', verdict: 'الحكم', inside: 'ضمن الحد', outside: 'خارج الحد',
		tapsTable: 'أسوأ القيم الداخلية', tapsHelp: 'ما تحسبه العقد داخل النموذج للنص 2، مقابل أعداد من 64 بتًا محسوبة على المعالج: هنا يظهر أين يبدأ العطل.', tap: 'العقدة', rowsColumn: 'الرموز', whole: 'الخطأ النسبي', worst: 'في أسوأ رمز',

		benchTitle: 'ما سرعته هنا؟', benchHelp: 'نص واحد يُحسب من جديد كل مرة، ثم رموز بالاختيار الأرجح. في النتيجة كل ما يحتاجه غيرك ليعيد القياس.', benchRun: 'تشغيل', benchPrompt: 'النص', withTemplate: 'تطبيق قالب المحادثة', benchTokens: 'الرموز', warmUp: 'إحماء', repetitions: 'مرات',
		warming: 'إحماء {i} من {n}', repeating: 'مرة {i} من {n}', timing: 'أزمنة النوى', benchTable: 'رموز في الثانية', test: 'الجزء', tokensColumn: 'الرموز', rate: 'في الثانية', decode: 'التوليد', benchSaid: 'الوسيط ± الانحراف المعياري لعدد {n} من المرات بعد {warm} للإحماء.',
		benchMemory: 'الذاكرة: {memory}.', kernels: 'أين يذهب وقت بطاقة الرسوميات', kernelsHelp: 'من تشغيل إضافي تُقاس فيه كل نواة وحدها، فمجموعها أطول مما في المرات أعلاه. والمتصفحات تقرّب هذه الأزمنة.', noKernels: 'أزمنة النوى غير معروفة: لا يعطي هذا المتصفح الصفحات طوابع زمنية من بطاقة الرسوميات.', kernel: 'النواة', calls: 'مرات النداء', milliseconds: 'م.ث', share: 'الحصة',
		benchJSON: 'النتيجة بصيغة JSON', copy: 'نسخ', copied: 'نُسخ', copyByHand: 'حُدّد: انسخه', benchDone: 'انتهى: {rate} رمزًا في الثانية.',

		probeTitle: 'ماذا تحسب عقدة؟', probeHelp: 'كل قيم عقدة واحدة لكل رموز نص: لا عيّنات ولا حشو، والنوع هو نوع العقدة.', probeRun: 'احسب', probeText: 'النص', node: 'العقدة', before: 'العقدة السابقة', next: 'العقدة التالية', noNode: 'لا عقدة بهذا الاسم.',
		probeStrange: '{nan} من القيم ليست أعدادًا (NaN) و{inf} لا نهائية: هناك عطل.', operation: 'العملية', dtype: 'النوع', shape: 'الشكل', values: 'القيم', minimum: 'الأصغر', maximum: 'الأكبر', mean: 'المتوسط', std: 'الانحراف المعياري', rms: 'جذر متوسط المربعات', zeros: 'أصفار', nans: 'NaN', infs: 'لا نهائية',
		histogram: 'مدرّج تكراري', histogramLabel: 'مدرّج تكراري من {from} إلى {to}؛ أطول عمود فيه {most} قيمة', histogramHelp: 'الارتفاعات لوغاريتمات الأعداد.', rows: 'حسب الرمز', row: 'الموضع', tokenColumn: 'الرمز', probeDone: '{name}: جذر متوسط المربعات {rms}',
	},
};
