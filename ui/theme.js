/* Before anything is drawn: the theme that was chosen, else the system's. */
'use strict';
(() => {
	let chosen = null;
	try {
		chosen = localStorage.getItem('den.theme');
	} catch {
		/* storage may be switched off: the system decides */
	}
	if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
