/*
 * xterm.js under a policy without 'unsafe-inline'. It makes <style> elements and sets style attributes as
 * text, both of which the policy stops. What it wants is allowed by other means: a style sheet that was
 * constructed, and style properties that are set by script. So its two calls are led there.
 */
function sheetElement(doc) {
	const el = doc.createElementNS('http://www.w3.org/1999/xhtml', 'den-style');
	const sheet = new CSSStyleSheet();
	el.hidden = true;
	doc.adoptedStyleSheets = [...doc.adoptedStyleSheets, sheet];
	Object.defineProperty(el, 'textContent', { set: (css) => sheet.replaceSync(css), get: () => '' });
	Object.defineProperty(el, 'sheet', { get: () => sheet });
	el.remove = () => {
		doc.adoptedStyleSheets = doc.adoptedStyleSheets.filter((s) => s !== sheet);
		Element.prototype.remove.call(el);
	};
	return el;
}

const make = document.createElement;
document.createElement = function createElement(name, ...rest) {
	return name === 'style' ? sheetElement(document) : make.call(document, name, ...rest);
};
HTMLSpanElement.prototype.setAttribute = function setAttribute(name, value) {
	if (name === 'style') this.style.cssText = value;
	else Element.prototype.setAttribute.call(this, name, value);
};

export { Terminal } from './xterm.js';
export { FitAddon } from './xterm-fit.js';
